import { randomUUID } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { type FastifyReply, type FastifyRequest, LogController } from 'fastify'
import type { RequestStatistics } from './connections/request-statistics.ts'
import type { OutageLog } from './outage-log.ts'

/** Silences the framework's own two lines for each request: `logRequest` writes one. */
export const requestLog = new LogController({ disableRequestLogging: true, requestIdLogLabel: 'requestId' })

/**
 * The id of a request: its `X-Request-Id`, where that is fit to be stored and searched for, or a new one. A longer or
 * stranger one could forge log lines elsewhere.
 */
export function requestId({ headers }: IncomingMessage): string {
  const given = headers['x-request-id']
  return typeof given === 'string' && /^[A-Za-z0-9._-]{1,128}$/.test(given) ? given : randomUUID()
}

/**
 * Writes one line when the request has ended, whichever way it ended, and counts it. The path goes without its query,
 * and the duration is counted from `start`, as `performance.now()` counts.
 */
export function logRequest(
  request: FastifyRequest,
  reply: FastifyReply,
  statistics: RequestStatistics,
  outages: OutageLog,
  start = performance.now(),
): void {
  const { raw } = reply
  // Now: a socket that its client has closed has no address any more.
  const client = request.ip
  raw.once('close', () => {
    const durationMs = performance.now() - start
    const { method, apiKey } = request
    const route = request.routeOptions.url
    // None where the caller got no answer of this request's, say because its body never came.
    const status = raw.headersSent ? raw.statusCode : undefined
    // Under a key, either status is the answer of the database.
    if (apiKey && (status === 200 || status === 304)) outages.requestServed()
    statistics.recordCompleted(route, method, status, durationMs / 1000)
    request.log.info(
      {
        method,
        route: route ?? null,
        path: request.url.split('?', 1)[0],
        status: status ?? null,
        durationMs: Math.round(durationMs * 100) / 100,
        key: apiKey?.name ?? null,
        keyId: apiKey?.id ?? null,
        ...(apiKey?.invalidReason === undefined ? {} : { keyState: apiKey.invalidReason }),
        client,
        ...(raw.writableFinished ? {} : { aborted: true }),
      },
      'request',
    )
  })
}
