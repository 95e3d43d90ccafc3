// Apart from the tracing itself, so that a service without it does not load OpenTelemetry's SDK.

type Variables = Readonly<Record<string, string | undefined>>

/** The variables of OpenTelemetry that the service or its SDK reads, and the values with an effect, if not all have one. */
const honored: readonly (readonly [name: RegExp, ...values: string[]])[] = [
  [/^OTEL_(SDK_DISABLED|SERVICE_NAME|RESOURCE_ATTRIBUTES)$/],
  [/^OTEL_TRACES_EXPORTER$/, 'otlp', 'none'],
  [/^OTEL_(METRICS|LOGS)_EXPORTER$/, 'none'],
  [/^OTEL_TRACES_SAMPLER(_ARG)?$/],
  [/^OTEL_PROPAGATORS$/, 'tracecontext', 'tracecontext,baggage', 'baggage,tracecontext'],
  [/^OTEL_EXPORTER_OTLP_(TRACES_)?(ENDPOINT|HEADERS|TIMEOUT|CERTIFICATE|CLIENT_CERTIFICATE|CLIENT_KEY)$/],
  [/^OTEL_EXPORTER_OTLP_(TRACES_)?PROTOCOL$/, 'http/protobuf'],
  [/^OTEL_EXPORTER_OTLP_(TRACES_)?COMPRESSION$/, 'gzip', 'none'],
  [/^OTEL_BSP_(SCHEDULE_DELAY|EXPORT_TIMEOUT|MAX_QUEUE_SIZE|MAX_EXPORT_BATCH_SIZE)$/],
  [/^OTEL_(SPAN_)?ATTRIBUTE_(COUNT|VALUE_LENGTH)_LIMIT$/],
  [/^OTEL_SPAN_((EVENT|LINK)|ATTRIBUTE_PER_(EVENT|LINK))_COUNT_LIMIT$/],
]

/** Returns whether the variables of OpenTelemetry turn on traces, and a warning, without its value, for each that has no effect here. */
export function tracingSettings(env: Variables): { isEnabled: boolean; warnings: string[] } {
  if (env['OTEL_SDK_DISABLED']?.toLowerCase() === 'true') return { isEnabled: false, warnings: [] }
  const exporters = env['OTEL_TRACES_EXPORTER']
  const endpoint = env['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT'] || env['OTEL_EXPORTER_OTLP_ENDPOINT']
  const isEnabled = exporters ? /(^|,)\s*otlp\s*(,|$)/.test(exporters) : Boolean(endpoint)
  const warnings = Object.entries(env).flatMap(([name, value = '']) => {
    if (!name.startsWith('OTEL_') || value.trim() === '') return []
    const rule = honored.find(([pattern]) => pattern.test(name))
    if (rule === undefined) return `${name} has no effect`
    const [, ...values] = rule
    if (values.length === 0 || values.includes(value.replaceAll(/\s/g, ''))) return []
    return `${name} has an effect only with the value ${values.join(' or ')}`
  })
  return { isEnabled, warnings }
}
