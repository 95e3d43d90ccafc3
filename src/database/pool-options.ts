import type { TimeLimits } from './database.ts'
import type { PrimaryServer } from './primary.ts'

/**
 * A statement takes at most `answer`, which `connect` and `statement` together do not exceed, so that PostgreSQL cancels a statement
 * and reports it, and the client gives up only if the server no longer responds. With the time that updates wait, it is less than
 * the 10 seconds after which callers give up. The limit for locks is short, because one statement serves several callers: a caller
 * whose row is locked waits longer by retries.
 */
export const requestLimits: TimeLimits = { connect: 2000, lock: 250, statement: 5000, answer: 7000 }

/** For reads of all entries. A large table may take minutes, as long as data keeps arriving. */
export const listLimits: TimeLimits = { connect: 2000, lock: 2000, statement: 120_000, answer: 7000 }

/** For readiness checks, whose callers give up after a second or two. */
export const probeLimits: TimeLimits = { connect: 1000, lock: 500, statement: 1000, answer: 2000 }

export interface DatabaseOptions {
  /** A `postgres://` address. */
  readonly url: string
  /** Verifies the server of each connection. Absent if a connection to any server is allowed, including a standby. */
  readonly server?: PrimaryServer
  /** Maximum connections. */
  readonly size: number
  readonly limits: TimeLimits
  /** Whether a connection pooler in transaction mode is between this process and the server; see `pooledSession`. */
  readonly behindPooler?: boolean
  /** Further settings of each session, whatever the options in the address are. Ignored behind a pooler. */
  readonly settings?: Readonly<Record<string, string>>
  /** How long a connection is used before it is closed, in seconds. There is no limit by default. */
  readonly lifetimeSeconds?: number
  /** Whether idle connections stay open. By default, they are closed after a while. */
  readonly staysOpen?: boolean
  /**
   * Whether no connection is opened while a commit waits for a synchronous standby for longer than a statement may take. Its server
   * process stays even if the client disconnects, so that each new connection could leave another process behind.
   */
  readonly isForUpdates?: boolean
  /** Called with the reason when an idle connection is lost. The pool replaces it on its own. */
  readonly onConnectionLost: (reason: string) => void
}
