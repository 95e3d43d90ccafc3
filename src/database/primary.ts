import pg from 'pg'
import type { Outcome } from './causes.ts'
import type { DatabaseConnection } from './database-connection.ts'
import { onlyRow } from './only-row.ts'
import { HAS_SETTINGS } from './session.ts'
import { StatementError } from './statement-error.ts'
import type { TimeLimits } from './time-limits.ts'

/** SQL condition for a read-only server: a standby, or one with `default_transaction_read_only`. */
export const IS_READ_ONLY = "(pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on')"

/** SQL condition for a database with the extension Citus, which can keep tables on other servers. */
export const HAS_CITUS = "EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"

/** The server that a session is connected to. */
interface SessionServer {
  readonly isReadOnly: boolean
  readonly hasSettings: boolean
  /** Whether a commit of the role waits for a synchronous standby for longer than a statement may take. */
  readonly hasLateCommit: boolean
  /** That of the database cluster: a primary and its standbys have the same one. */
  readonly systemIdentifier: string | null
  /** Increases with each promotion (PostgreSQL manual, section 25.3.6). Null on a standby, or if the query is not allowed. */
  readonly timeline: number | null
  /** When the server was started, in Unix time. */
  readonly startedAt: string | null
}

/**
 * The name of the current WAL file starts with the timeline of a primary, as eight hexadecimal digits. The control file has the
 * timeline of the last checkpoint, which is outdated for a while after a promotion.
 */
const IDENTITY = `system_identifier::text AS "systemIdentifier",
  CASE WHEN NOT pg_is_in_recovery()
    THEN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer END AS timeline,
  extract(epoch FROM pg_postmaster_start_time())::text AS "startedAt" FROM pg_control_system()`

const NO_IDENTITY = 'NULL AS "systemIdentifier", NULL AS timeline, NULL AS "startedAt"'

/** Asks which server a session is on, within the limit for a connection. Not every role or service allows to ask for its identity. */
export async function askServer(client: pg.ClientBase, limits: TimeLimits): Promise<SessionServer> {
  const ask = async (identity: string): Promise<SessionServer> => {
    const text = `SELECT ${IS_READ_ONLY} AS "isReadOnly", ${HAS_SETTINGS} AS "hasSettings",
      EXISTS (SELECT FROM pg_stat_activity WHERE usename = current_user AND wait_event = 'SyncRep'
        AND now() - query_start > interval '${limits.statement} ms') AS "hasLateCommit", ${identity}`
    const query = { text, query_timeout: limits.connect }
    return onlyRow((await client.query<SessionServer>(query)).rows)
  }
  return ask(IDENTITY).catch((error: unknown) => {
    if (!(error instanceof pg.DatabaseError)) throw error
    return ask(NO_IDENTITY)
  })
}

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
