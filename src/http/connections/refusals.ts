import { randomUUID } from 'node:crypto'
import type { FastifyBaseLogger } from 'fastify'
import type { Connection, Refusal } from './connection.ts'
import { errorMessage } from './malformed-requests.ts'
import type { RequestStatistics } from './request-statistics.ts'

/** Where errors that no handler sends are counted and logged. */
export interface RefusalReport {
  readonly statistics: RequestStatistics
  readonly log: FastifyBaseLogger
}

/**
 * Ends a connection with an error: now or, if requests before it are not answered, once the caller calls `sendRefusal`. A
 * request whose body has the error, and that was answered early, gets no second response.
 */
export function refuse(connection: Connection, refusal: Refusal, report: RefusalReport): void {
  if (connection.refusal !== undefined) return
  const { current, isBusy, newestRequest, socket } = connection
  const request = newestRequest?.complete === false ? newestRequest : undefined
  // The address is read now: a socket that its client has closed has none any more.
  connection.refusal = { ...refusal, request, client: socket.remoteAddress }
  const isCurrent = current !== undefined && current.req === request
  if (!isBusy && request !== undefined) connection.end()
  else if (!isBusy || (isCurrent && !current.headersSent)) sendRefusal(connection, report)
}

/** Sends the error of a connection, and closes the connection. */
export function sendRefusal(connection: Connection, { statistics, log }: RefusalReport): void {
  if (connection.refusal === undefined) return
  const { error, reason, client } = connection.refusal
  const { status, cause } = error
  const requestId = randomUUID()
  if (cause === undefined) statistics.malformed.inc({ http_response_status_code: String(status) })
  else statistics.unavailable.inc({ cause })
  log.info(
    { requestId, status, reason, client, ...(cause && { cause }) },
    cause === undefined ? 'malformed request refused' : 'pipelined requests refused',
  )
  if (connection.socket.writable) connection.end(errorMessage(error, requestId))
}
