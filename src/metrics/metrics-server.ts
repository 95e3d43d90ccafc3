import fastify from 'fastify'
import type { Logger } from 'pino'
import { prometheusContentType } from 'prom-client'

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
  const app = fastify({ requestTimeout: 10_000 })
  app.get('/metrics', async (_request, reply) => reply.type(prometheusContentType).send(await scrape()))
  app.setNotFoundHandler(({ url }, reply) =>
    url === '/metrics'
      ? reply.code(405).header('allow', 'GET, HEAD').send('Only GET and HEAD are allowed.\n')
      : reply.code(404).send('The metrics are at /metrics.\n'),
  )
  app.setErrorHandler((err, _request, reply) => {
    log.error({ err }, 'the metrics could not be collected')
    return reply.code(500).send('The metrics could not be collected.\n')
  })
  const address = await app.listen({ host, port })
  log.info(`metrics at ${address}/metrics`)
}
