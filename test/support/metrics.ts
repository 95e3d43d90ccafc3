import { type ExposedFamily, parseExposition } from './exposition.ts'
import { callerOf, type Send } from './http.ts'
import type { Program } from './program.ts'

export interface MetricsCaller {
  readonly send: Send
  /** Asks for the metrics and reads them. */
  scrape(): Promise<Map<string, ExposedFamily>>
}

/** Speaks to the port on which a server says that it serves metrics. */
export async function metricsOf(server: Program): Promise<MetricsCaller> {
  const [, port] = await server.output(/metrics at http:\/\/[^:]+:(\d+)\/metrics/)
  const send = callerOf(Number(port))
  return {
    send,
    async scrape() {
      const { status, text } = await send('GET', '/metrics')
      if (status !== 200) throw new Error(`The metrics cannot be had: ${status} ${text}`)
      return parseExposition(text)
    },
  }
}
