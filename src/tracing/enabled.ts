/**
 * Returns whether the variables of OpenTelemetry turn on traces: with an endpoint, or with the exporter's default endpoint. Apart
 * from the tracing itself, so that a service without it does not load OpenTelemetry's SDK.
 */
export function isTracingEnabled(env: Readonly<Record<string, string | undefined>>): boolean {
  if (env['OTEL_SDK_DISABLED']?.toLowerCase() === 'true') return false
  const { OTEL_TRACES_EXPORTER: exporter } = env
  if (exporter) return exporter === 'otlp'
  return Boolean(env['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'] || env['OTEL_EXPORTER_OTLP_ENDPOINT'])
}
