import { createSender } from './http.ts'
import type { Program } from './program.ts'

/** A value, as Prometheus reads it. */
export interface Sample {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

/** Reads the text format of Prometheus. */
export function parseSamples(text: string): Sample[] {
  const lines = text.matchAll(/^(\w+)(?:\{(.*)\})? (\S+)$/gm)
  return Array.from(lines, ([, name = '', labels = '', value]) => {
    const pairs = Array.from(labels.matchAll(/(\w+)="([^"]*)"/g), ([, label, of]) => [label, of])
    return { name, labels: Object.fromEntries(pairs), value: Number(value) }
  })
}

/** The samples with a name and, among others, these labels. */
export function findSamples(samples: readonly Sample[], name: string, labels: Sample['labels'] = {}) {
  const wanted = Object.entries(labels)
  const has = (sample: Sample) => wanted.every(([label, value]) => sample.labels[label] === value)
  return samples.filter((sample) => sample.name === name && has(sample))
}

/** The sum of their values. */
export const total = (...asked: Parameters<typeof findSamples>): number =>
  findSamples(...asked).reduce((sum, { value }) => sum + value, 0)

/** Speaks to the port on which a server says that it serves metrics; `scrape` asks for them and reads them. */
export async function connectToMetrics(server: Program) {
  const [, port] = await server.output(/metrics at http:\/\/[^:]+:(\d+)\/metrics/)
  const send = createSender(Number(port))
  return {
    port: Number(port),
    send,
    scrape: async (): Promise<Sample[]> => parseSamples((await send('GET', '/metrics')).text),
  }
}
