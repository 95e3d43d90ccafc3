import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { Type } from '@sinclair/typebox'
import { serviceUnavailable } from '../errors.ts'

/** Why this process cannot serve now, in words for an operator; undefined when it can. */
export type Readiness = () => Promise<string | undefined>

/** How long an answer of the readiness check serves those who ask again, in milliseconds. */
const KEEP = 1000

/**
 * `/livez`: the process runs and answers; nothing that a restart would not mend is looked at.
 * `/readyz`: requests can be served. However often it is asked, one check is under way at a time.
 */
export const healthRoutes: FastifyPluginAsyncTypebox<{ readiness: Readiness }> = async (
  app,
  { readiness },
) => {
  const schema = { hide: true, response: { 200: Type.Object({ status: Type.String() }) } }
  // Probes come every few seconds and say nothing that their callers do not keep themselves.
  const options = { schema, logLevel: 'warn' } as const

  app.get('/livez', options, () => ({ status: 'ok' }))

  let closing = false
  app.addHook('preClose', async () => {
    closing = true
  })
  let last: string | undefined
  let check: Promise<string | undefined> | undefined
  app.get('/readyz', options, async () => {
    if (closing) throw serviceUnavailable('The service is shutting down.')
    check ??= readiness().finally(() => setTimeout(() => (check = undefined), KEEP).unref())
    const reason = await check
    if (reason !== last) app.log.warn(reason === undefined ? 'ready again' : `not ready: ${reason}`)
    last = reason
    if (reason !== undefined) throw serviceUnavailable(reason)
    return { status: 'ready' }
  })
}
