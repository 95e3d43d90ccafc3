import fp from 'fastify-plugin'
import { ApiError, serviceUnavailable } from '../contract/api-error.ts'
import type { Readiness } from '../database/readiness.ts'

export interface HealthOptions {
  readonly version: string
  readonly readiness: Readiness
  /** Aborted when the stop begins. */
  readonly stopping: AbortSignal
}

/**
 * Serves the health checks. `/livez` (liveness) has the version, and checks nothing that a restart would not fix. `/readyz`
 * (readiness) says whether this process can serve requests.
 */
export const health = fp<HealthOptions>(
  async (app, { version, readiness, stopping }) => {
    // Probes are too frequent to log.
    const route = { schema: { hide: true }, logLevel: 'warn' } as const
    // A shared cache, such as Varnish, may otherwise keep a result for minutes. Errors say it themselves.
    const uncached = { 'cache-control': 'no-store' }

    app.get('/livez', route, (_request, reply) => reply.headers(uncached).send({ status: 'ok', version }))

    let lastReason: string | undefined
    app.get('/readyz', route, async (_request, reply) => {
      // A 404 to take this process out of use at once, which a load balancer should not do because of one 503.
      if (stopping.aborted) throw new ApiError(404, 'The service is shutting down.')
      const { reason, error } = (await readiness()) ?? {}
      if (reason !== lastReason)
        app.log.warn({ err: error?.cause }, reason === undefined ? 'ready again' : `not ready: ${reason}`)
      lastReason = reason
      if (reason !== undefined) throw serviceUnavailable('not_ready', reason)
      return reply.headers(uncached).send({ status: 'ready' })
    })
  },
  { name: 'health', dependencies: ['errors', 'refusals'] },
)
