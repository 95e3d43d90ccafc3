import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { Type } from '@sinclair/typebox'
import type { NotReady } from '../database/readiness.ts'
import { serviceUnavailable } from '../errors.ts'
import { version } from '../version.ts'

/** Tells why requests cannot be served now; undefined when they can. */
export type Readiness = () => Promise<NotReady | undefined>

export interface HealthOptions {
  readonly readiness: Readiness
  /** True once the service has begun to stop. */
  readonly isClosing: () => boolean
}

/** How long an answer of the readiness check serves those who ask again, in milliseconds. */
const KEEP = 1000

/**
 * `/livez`: the process runs and answers, and which version; nothing that a restart would not mend is looked at.
 * `/readyz`: requests can be served. However often it is asked, one check is under way at a time.
 */
export const healthRoutes: FastifyPluginAsyncTypebox<HealthOptions> = async (
  app,
  { readiness, isClosing },
) => {
  const answer = Type.Object({ status: Type.String(), version: Type.Optional(Type.String()) })
  const schema = { hide: true, response: { 200: answer } }
  // Probes come every few seconds and say nothing that their callers do not keep themselves.
  const options = { schema, logLevel: 'warn' } as const

  app.get('/livez', options, () => ({ status: 'ok', version }))

  let last: string | undefined
  let check: Promise<NotReady | undefined> | undefined
  app.get('/readyz', options, async () => {
    if (isClosing()) throw serviceUnavailable('The service is shutting down.')
    check ??= readiness().finally(() => setTimeout(() => (check = undefined), KEEP).unref())
    const { reason, cause } = (await check) ?? {}
    if (reason !== last)
      app.log.warn({ err: cause }, reason === undefined ? 'ready again' : `not ready: ${reason}`)
    last = reason
    if (reason !== undefined) throw serviceUnavailable(reason)
    return { status: 'ready' }
  })
}
