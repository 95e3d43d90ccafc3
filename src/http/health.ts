import type { IncomingMessage } from 'node:http'
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { Type } from '@sinclair/typebox'
import { serviceUnavailable } from '../contract/errors.ts'
import type { NotReady } from '../database/readiness.ts'

/** Tells why requests cannot be served now; undefined when they can. */
export type Readiness = () => Promise<NotReady | undefined>

/** The readiness of a service that several processes make up. */
export interface SharedReadiness {
  /** Why the service cannot serve requests now, whichever process they reach; undefined when it can. */
  readiness(): Promise<string | undefined>
  /** Has the other processes know from now on why this one cannot serve requests. */
  reportReadiness(own: () => Promise<string | undefined>): void
}

export interface HealthOptions {
  /** The version of this software. */
  readonly version: string
  /** Of this process. */
  readonly readiness: Readiness
  /** Absent where this process is the service. */
  readonly shared: SharedReadiness | undefined
  /** True once the service has begun to stop. */
  readonly isClosing: () => boolean
}

/** How long an answer of the readiness check serves those who ask again, in milliseconds. */
export const READINESS_AGE_MS = 1000

export const SHUTTING_DOWN = 'The service is shutting down.'

/** Has one call serve all who ask while it is under way and for `READINESS_AGE_MS` milliseconds after it. */
export function reuse<Answer>(check: () => Promise<Answer>): () => Promise<Answer> {
  let latest: Promise<Answer> | undefined
  return () => {
    latest ??= check().finally(() => setTimeout(() => (latest = undefined), READINESS_AGE_MS).unref())
    return latest
  }
}

/** Whether a request is for one of the health checks. */
export function isHealthCheck({ url = '' }: IncomingMessage): boolean {
  return /^\/(livez|readyz)(\?|$)/.test(url)
}

/**
 * `/livez`: the process runs and answers, and which version; nothing that a restart would not fix is looked at.
 * `/readyz`: the service can serve requests, whichever of its processes they reach. However often it is asked, one check
 * is under way at a time.
 */
export const healthRoutes: FastifyPluginAsyncTypebox<HealthOptions> = async (
  app,
  { version, readiness, shared, isClosing },
) => {
  const answer = Type.Object({ status: Type.String(), version: Type.Optional(Type.String()) })
  const schema = { hide: true, response: { 200: answer } }
  // Probes are too frequent to log.
  const options = { schema, logLevel: 'warn' } as const

  app.get('/livez', options, () => ({ status: 'ok', version }))

  let last: string | undefined
  const check = async (): Promise<string | undefined> => {
    const { reason, cause } = (await readiness()) ?? {}
    if (reason !== last)
      app.log.warn({ err: cause }, reason === undefined ? 'ready again' : `not ready: ${reason}`)
    last = reason
    return reason
  }
  shared?.reportReadiness(check)
  const own = reuse(check)
  app.get('/readyz', options, async () => {
    const reason = await (shared?.readiness() ?? (isClosing() ? SHUTTING_DOWN : own()))
    if (reason !== undefined) throw serviceUnavailable(reason)
    return { status: 'ready' }
  })
}
