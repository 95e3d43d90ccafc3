import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { Type } from '@sinclair/typebox'
import { ApiError, serviceUnavailable } from '../contract/api-error.ts'
import type { Readiness } from '../database/admin/readiness.ts'

export interface HealthOptions {
  /** The version of this software. */
  readonly version: string
  readonly readiness: Readiness
  /** Whether the server is stopping. */
  readonly isStopping: () => boolean
}

/**
 * Registers the health checks. `/livez` (liveness) says that the process responds, and its version; it checks nothing that
 * a restart would not fix. `/readyz` (readiness) says whether this process can serve requests.
 */
export const healthRoutes: FastifyPluginAsyncTypebox<HealthOptions> = async (
  app,
  { version, readiness, isStopping },
) => {
  const body = Type.Object({ status: Type.String(), version: Type.Optional(Type.String()) })
  const schema = { hide: true, response: { 200: body } }
  // Probes are too frequent to log.
  const options = { schema, logLevel: 'warn' } as const
  // A shared cache, such as Varnish, may otherwise keep a result for minutes.
  app.addHook('onRequest', (_request, reply, done) => {
    reply.header('cache-control', 'no-store')
    done()
  })

  app.get('/livez', options, () => ({ status: 'ok', version }))

  let lastReason: string | undefined
  app.get('/readyz', options, async () => {
    // A 404 to take this process out of use at once, which a load balancer should not do because of one 503.
    if (isStopping()) throw new ApiError(404, 'The service is shutting down.')
    const { reason, cause } = (await readiness()) ?? {}
    if (reason !== lastReason)
      app.log.warn({ err: cause }, reason === undefined ? 'ready again' : `not ready: ${reason}`)
    lastReason = reason
    if (reason !== undefined) throw serviceUnavailable('not_ready', reason)
    return { status: 'ready' }
  })
}
