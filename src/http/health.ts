import type { IncomingMessage } from 'node:http'
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { Type } from '@sinclair/typebox'
import { serviceUnavailable } from '../contract/errors.ts'
import type { NotReady } from '../database/readiness.ts'

/** Returns why this process cannot serve requests; undefined if it can. Never rejects. */
export type Readiness = () => Promise<NotReady | undefined>

/** The readiness of all worker processes that share the port. */
export interface SharedReadiness {
  /** Returns why some worker cannot serve requests; undefined if all can. */
  readiness(): Promise<string | undefined>
  /** Registers the readiness check of this process, for the other processes. */
  registerReadiness(check: () => Promise<string | undefined>): void
}

export interface HealthOptions {
  /** The version of this software. */
  readonly version: string
  /** Readiness of this process. */
  readonly readiness: Readiness
  /** Readiness of all workers; absent if this process is the only one. */
  readonly shared: SharedReadiness | undefined
  /** Whether the server is shutting down. */
  readonly isClosing: () => boolean
}

/** How long a result of the readiness check is cached. */
export const READINESS_MAX_AGE_MS = 1000

export const SHUTTING_DOWN = 'The service is shutting down.'

/** Coalesces calls of a readiness check: a call shares the check in progress, or its result of the last second. */
export function coalesceChecks<Result>(check: () => Promise<Result>): () => Promise<Result> {
  let latest: Promise<Result> | undefined
  return () => {
    latest ??= check().finally(() => setTimeout(() => (latest = undefined), READINESS_MAX_AGE_MS).unref())
    return latest
  }
}

/** Whether a request is a health check. */
export function isHealthCheck({ url = '' }: IncomingMessage): boolean {
  return /^\/(livez|readyz)(\?|$)/.test(url)
}

/**
 * Registers the health checks. `/livez` (liveness) says that the process responds, and its version; it checks nothing that
 * a restart would not fix. `/readyz` (readiness) says whether every worker can serve requests, with at most one check of
 * the database in progress.
 */
export const healthRoutes: FastifyPluginAsyncTypebox<HealthOptions> = async (
  app,
  { version, readiness, shared, isClosing },
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
  const check = async (): Promise<string | undefined> => {
    const { reason, cause } = (await readiness()) ?? {}
    if (reason !== lastReason)
      app.log.warn({ err: cause }, reason === undefined ? 'ready again' : `not ready: ${reason}`)
    lastReason = reason
    return reason
  }
  shared?.registerReadiness(check)
  const cachedCheck = coalesceChecks(check)
  app.get('/readyz', options, async () => {
    const reason = await (shared?.readiness() ?? (isClosing() ? SHUTTING_DOWN : cachedCheck()))
    if (reason !== undefined) throw serviceUnavailable(reason)
    return { status: 'ready' }
  })
}
