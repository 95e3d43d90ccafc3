import { callerOf, type Send } from './http.ts'
import type { Program } from './program.ts'

/** A metric as Prometheus reads it. */
export interface Family {
  readonly name: string
  readonly help: string
  readonly type: string
  readonly series: readonly Series[]
}

interface Series {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

/** Reads the text format of Prometheus. */
export function parseMetrics(text: string): Map<string, Family> {
  const families = text.matchAll(/^# HELP (\S+) (.*)\n# TYPE \1 (.*)\n((?:[^#\n].*\n?)*)/gm)
  return new Map(
    Array.from(families, ([, name = '', help = '', type = '', lines = '']) => {
      const series = Array.from(
        lines.matchAll(/^(\w+)(?:\{(.*)\})? (\S+)$/gm),
        ([, name = '', labels = '', value = '']) => ({
          name,
          labels: Object.fromEntries(
            Array.from(labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g), ([, label = '', of = '']) => [
              label,
              of,
            ]),
          ),
          value: Number(value.replace('Inf', 'Infinity')),
        }),
      )
      return [name, { name, help, type, series }]
    }),
  )
}

/** The sum of the values of the series with a name and, among others, these labels. */
export function total(
  families: ReadonlyMap<string, Family>,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number {
  return [...families.values()]
    .flatMap(({ series }) => series)
    .filter((one) => one.name === name && Object.entries(labels).every(([key, of]) => one.labels[key] === of))
    .reduce((sum, { value }) => sum + value, 0)
}

export interface MetricsCaller {
  readonly send: Send
  /** Asks for the metrics and reads them. */
  scrape(): Promise<Map<string, Family>>
}

/** Speaks to the port on which a server says that it serves metrics. */
export async function metricsOf(server: Program): Promise<MetricsCaller> {
  const [, port] = await server.output(/metrics at http:\/\/[^:]+:(\d+)\/metrics/)
  const send = callerOf(Number(port))
  return { send, scrape: async () => parseMetrics((await send('GET', '/metrics')).text) }
}
