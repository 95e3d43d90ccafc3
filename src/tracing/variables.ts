// Apart from the tracing itself, so that a service without it does not load OpenTelemetry's SDK.
import { validateHeaderName, validateHeaderValue } from 'node:http'

/**
 * Returns whether the variables of OpenTelemetry turn on traces, and an error for each that the exporter would ignore without one, without
 * its value, which may be a secret.
 */
export function tracingSettings(env: Readonly<Record<string, string | undefined>>) {
  const read = (name: string): string => env[name]?.trim() ?? ''
  const exporters = read('OTEL_TRACES_EXPORTER')
  const endpoint = read('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT') || read('OTEL_EXPORTER_OTLP_ENDPOINT')
  const isWanted = exporters ? /(^|,)\s*otlp\s*(,|$)/.test(exporters) : endpoint !== ''
  const isEnabled = isWanted && read('OTEL_SDK_DISABLED').toLowerCase() !== 'true'
  const errors: string[] = []
  for (const prefix of isEnabled ? ['OTEL_EXPORTER_OTLP_', 'OTEL_EXPORTER_OTLP_TRACES_'] : []) {
    const [address = '', headers = ''] = [env[`${prefix}ENDPOINT`], env[`${prefix}HEADERS`]]
    // The exporter neither adds a scheme nor removes blanks.
    if (address.trim() && !(/^https?:\/\/\S+$/i.test(address) && URL.canParse(address)))
      errors.push(`${prefix}ENDPOINT must be an address such as http://collector:4318`)
    if (!headers.split(',').every(isHeader))
      errors.push(
        `${prefix}HEADERS must be comma-separated pairs of name=value, percent-encoded where necessary`,
      )
  }
  return { isEnabled, errors }
}

/** Whether the exporter sends a pair: it drops one without a name or a value, and what follows a semicolon. */
function isHeader(pair: string): boolean {
  if (pair.trim() === '') return true
  const encoded = /^\s*([^=;]+?)\s*=\s*([^;]*[^;\s])\s*$/.exec(pair) ?? []
  try {
    const [, name = '', value = ''] = encoded.map(decodeURIComponent)
    validateHeaderName(name)
    validateHeaderValue(name, value)
    return true
  } catch {
    return false
  }
}
