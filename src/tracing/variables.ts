// Apart from the tracing itself, so that a service without it does not load OpenTelemetry's SDK.
import { readFileSync } from 'node:fs'
import { validateHeaderName, validateHeaderValue } from 'node:http'

type Variables = Readonly<Record<string, string | undefined>>

/** Variables, also those with `TRACES_`, that the exporter ignores without an error if it cannot use them, which `use` throws. */
const checks: readonly (readonly [variables: RegExp, expected: string, use: (text: string) => void])[] = [
  [/^ENDPOINT$/, 'be an address such as http://collector:4318', useAddress],
  [/^HEADERS$/, 'be comma-separated pairs of name=value, percent-encoded where necessary', useHeaders],
  [/^((CLIENT_)?CERTIFICATE|CLIENT_KEY)$/, 'name a file that can be read', readFileSync],
]

/**
 * Returns whether the variables of OpenTelemetry turn on traces, and an error for each that the exporter could not use, without its
 * value, which may be a secret.
 */
export function tracingSettings(env: Variables): { isEnabled: boolean; errors: string[] } {
  const read = (name: string): string => env[name]?.trim() ?? ''
  const exporters = read('OTEL_TRACES_EXPORTER')
  const endpoint = read('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT') || read('OTEL_EXPORTER_OTLP_ENDPOINT')
  const isWanted = exporters ? /(^|,)\s*otlp\s*(,|$)/.test(exporters) : endpoint !== ''
  if (!isWanted || read('OTEL_SDK_DISABLED').toLowerCase() === 'true') return { isEnabled: false, errors: [] }
  const errors = Object.entries(env).flatMap(([name, value = '']) => {
    const [, variable] = /^OTEL_EXPORTER_OTLP_(?:TRACES_)?(.*)$/.exec(name) ?? []
    if (variable === undefined || value.trim() === '') return []
    const [, expected, use] = checks.find(([variables]) => variables.test(variable)) ?? []
    try {
      use?.(value)
      return []
    } catch {
      return `${name} must ${expected}`
    }
  })
  return { isEnabled: true, errors }
}

/** The exporter neither adds a scheme nor removes blanks. */
function useAddress(text: string): void {
  if (!/^https?:\/\/\S+$/i.test(text)) throw new TypeError('no address of HTTP')
  new URL(text)
}

/** The exporter drops a pair without a name or a value, and what follows a semicolon. */
function useHeaders(text: string): void {
  for (const pair of text.split(',')) {
    if (pair.trim() === '') continue
    const encoded = /^\s*([^=;]+?)\s*=\s*([^;]*[^;\s])\s*$/.exec(pair) ?? []
    const [, name = '', value = ''] = encoded.map(decodeURIComponent)
    validateHeaderName(name)
    validateHeaderValue(name, value)
  }
}
