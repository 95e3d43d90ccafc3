import fastify from 'fastify'
import type { Logger } from 'pino'
import { prometheusContentType } from 'prom-client'
import { logController } from '../http/request-log.ts'

export interface MetricsServerOptions {
  readonly host: string
  readonly port: number
  /** Returns the metrics in Prometheus's text format. */
  readonly scrape: () => Promise<string>
  readonly log: Logger
}

/**
 * Serves `/metrics` for Prometheus until the process exits. It requires no API key, so its port must not be public.
 *
 * @throws the error of `listen`, such as EADDRINUSE
 */
export async function serveMetrics({ host, port, scrape, log }: MetricsServerOptions): Promise<void> {
  const app = fastify({ loggerInstance: log, logController, requestTimeout: 10_000 })
  app.get('/metrics', async (_request, reply) => reply.type(prometheusContentType).send(await scrape()))
  await app.listen({ host, port, listenTextResolver: (address) => `metrics at ${address}/metrics` })
}
