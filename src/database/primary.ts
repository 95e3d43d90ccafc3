import type { Outcome } from './causes.ts'
import type { DatabaseConnection } from './database-connection.ts'
import type { SessionServer } from './session-server.ts'
import { StatementError } from './statement-error.ts'

/**
 * Keeps all pools of a process on one server, the primary: each new connection is verified before its first use.
 *
 * | A new connection is on | What happens |
 * |---|---|
 * | a standby or a read-only server | it is closed, and all others are discarded |
 * | the server in use | it is used |
 * | a server of the same cluster on a newer timeline, or restarted since | it is used, and all others are discarded |
 * | a server of the same cluster on an older timeline | it is closed: acknowledged updates may be missing there |
 * | a server of another cluster | the same, because the address now leads there |
 * | a server whose identity is unknown | it is used |
 */
export class PrimaryServer {
  /** The open connections that may be used, of all pools. */
  readonly #connections = new Set<DatabaseConnection>()
  readonly #onRenewal: (reason: string) => void
  /** The last server in use whose identity is known. */
  #identified: SessionServer | undefined

  /** @param onRenewal called with the reason when all connections are discarded */
  constructor(onRenewal: (reason: string) => void) {
    this.#onRenewal = onRenewal
  }

  /** Verifies the server of a new connection. Throws a StatementError if it must not be used. */
  verify(connection: DatabaseConnection, server: SessionServer): void {
    if (server.isReadOnly) throw this.discardReadOnly('notSent')
    if (server.timeline !== null) this.#compare(server, server.timeline)
    this.#connections.add(connection)
    connection.once('end', () => this.#connections.delete(connection))
  }

  /** Discards all other connections if this is not the server in use. */
  #compare(server: SessionServer, timeline: number): void {
    const { systemIdentifier, timeline: latest, startedAt } = this.#identified ?? server
    if (server.systemIdentifier !== systemIdentifier) {
      this.#renew('the address leads to another database cluster')
    } else if (latest !== null && timeline < latest) {
      const message =
        `the server is a former primary: it is on timeline ${timeline}, and timeline ${latest} was in use since; ` +
        'restart the service to use this server anyway'
      throw new StatementError(new Error(message), 'notSent', 'formerPrimary')
    } else if (timeline !== latest) {
      this.#renew(`another server was promoted: timeline ${timeline} after ${latest}`)
    } else if (server.startedAt !== startedAt) {
      this.#renew('the server was restarted')
    }
    this.#identified = server
  }

  /** Discards all connections, because the server is read-only. Returns the error to throw for a statement with this outcome. */
  discardReadOnly(outcome: Outcome): StatementError {
    const message = 'the server is read-only: a standby, or default_transaction_read_only is on'
    this.#renew(message)
    return new StatementError(new Error(message), outcome, 'readOnly')
  }

  #renew(reason: string): void {
    if (this.#connections.size === 0) return
    for (const connection of this.#connections) connection.discard()
    this.#connections.clear()
    this.#onRenewal(reason)
  }
}
