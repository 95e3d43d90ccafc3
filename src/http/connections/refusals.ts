import { randomUUID } from 'node:crypto'
import type { FastifyBaseLogger } from 'fastify'
import type { Connection, Refusal } from './connection.ts'
import { errorMessage } from './malformed-requests.ts'
import type { RequestStatistics } from './request-statistics.ts'

/** Ends connections with an error that no handler sends, and counts and logs it. */
export class Refusals {
  readonly #statistics: RequestStatistics
  readonly #log: FastifyBaseLogger

  constructor(statistics: RequestStatistics, log: FastifyBaseLogger) {
    this.#statistics = statistics
    this.#log = log
  }

  /**
   * Ends a connection with an error: now or, if requests before it are not answered, once the caller calls `send`. A request
   * whose body has the error, and that was answered early, gets no second response.
   */
  refuse(connection: Connection, refusal: Refusal): void {
    if (connection.refusal !== undefined) return
    const { current, isBusy, newestRequest, socket } = connection
    const request = newestRequest?.complete === false ? newestRequest : undefined
    // The address is read now: a socket that its client has closed has none any more.
    connection.refusal = { ...refusal, request, client: socket.remoteAddress }
    const isCurrent = current !== undefined && current.req === request
    if (!isBusy && request !== undefined) connection.end()
    else if (!isBusy || (isCurrent && !current.headersSent)) this.send(connection)
  }

  /** Sends the error of a connection, and closes the connection. */
  send(connection: Connection): void {
    if (connection.refusal === undefined) return
    const { error, reason, client } = connection.refusal
    const { status, cause } = error
    const requestId = randomUUID()
    if (cause === undefined) this.#statistics.recordMalformed(status)
    else this.#statistics.recordUnavailable(cause)
    this.#log.info(
      { requestId, status, reason, client, ...(cause && { cause }) },
      cause === undefined ? 'malformed request refused' : 'pipelined requests refused',
    )
    if (connection.socket.writable) connection.end(errorMessage(error, requestId))
  }
}
