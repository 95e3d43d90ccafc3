import { Socket } from 'node:net'
import pg from 'pg'
import type { Outcome } from './causes.ts'
import type { Descriptions } from './prepared-statement.ts'
import { StatementError } from './statement-error.ts'

declare module 'pg' {
  interface Client {
    /** Whether the server has said that it is ready for the next statement, and none has been sent since. */
    readonly readyForQuery: boolean
  }
  interface Connection {
    /** Texts of the statements that the server has parsed, by name. */
    readonly parsedStatements: Readonly<Record<string, string>>
    /** Parses what the server sends, in a listener of the socket. */
    attachListeners(stream: Socket): void
  }
}

/**
 * The functions that warn when a commit is not everywhere where it should be. PostgreSQL has committed then, but not on its synchronous
 * standby; Citus, which commits on several servers, has not committed on one of them. Everything else may warn at any time: functions
 * of the operator, auto_explain, pgaudit. The text does not tell, because PostgreSQL translates it.
 */
const COMMIT_ROUTINE = /^(SyncRepWaitForLSN|FinishRemoteTransactionCommit)$/

/** A connection that knows what has become of a statement. */
export class DatabaseConnection extends pg.Client {
  readonly descriptions: Descriptions = new Map()
  /** By `performance.now()`. */
  readonly openedAt = performance.now()
  /** That of TCP, also beneath TLS. */
  readonly #socket: unknown = this.connection.stream
  /** Whether its server is no longer in use; see `PrimaryServer`. */
  isDiscarded = false
  /** Whether a statement has succeeded. */
  hasServed = false
  #commitWarning: string | undefined

  constructor(config?: pg.ClientConfig) {
    super(config)
    // A pool listens only while a client is idle: an error between two statements would end the process.
    this.on('error', () => {})
    this.on('notice', ({ routine = '', message }) => {
      if (COMMIT_ROUTINE.test(routine)) this.#commitWarning = message
    })
    this.#failOnLoginErrors()
  }

  /**
   * Makes each error of a login an error of `connect`, which closes the connection. pg's parser throws at an unknown method of
   * authentication, which would end the process. Without a password, pg keeps the socket open, and the server a process for each
   * attempt, until its `authentication_timeout`.
   */
  #failOnLoginErrors(): void {
    const { connection } = this
    const attachListeners = connection.attachListeners.bind(connection)
    connection.attachListeners = (stream) => {
      attachListeners(stream)
      const parsers = stream.listeners('data')
      stream.removeAllListeners('data')
      stream.on('data', (bytes) => {
        try {
          for (const parse of parsers) parse.call(stream, bytes)
        } catch (error) {
          connection.emit('error', error)
        }
      })
    }
    connection.on('error', () => this.cut())
  }

  /**
   * Closes the connection at once, so that PostgreSQL rolls an open transaction back. A reset (RST) drops what has not been sent: after
   * an orderly end, the system would go on sending a statement while the network is cut, and PostgreSQL would make it half a minute
   * later, over newer ones.
   */
  cut(): void {
    const { stream } = this.connection
    const socket = this.#socket
    // Only an open TCP socket has an address, and the system resets none whose end is being sent.
    if (socket instanceof Socket && socket.remoteFamily !== undefined && !stream.writableEnded)
      socket.resetAndDestroy()
    stream.destroy()
  }

  /** Closes it without waiting for its statements, because the old server may never respond. */
  discard(): void {
    this.isDiscarded = true
    this.cut()
  }

  /**
   * Throws unless the last statement has left the connection outside of a transaction (`I`), or in one (`T`; PostgreSQL manual, section
   * 54.7, ReadyForQuery). In any other state, what a statement has done may be rolled back. `outcome` is that of the statement if so.
   */
  expectState(expected: 'I' | 'T', outcome: Outcome): void {
    if (this.getTransactionStatus() === expected) return
    const message =
      'a transaction was open after a statement that commits, or ended before its COMMIT: between this process and PostgreSQL is a ' +
      'connection pooler or proxy that mixes sessions, such as pgpool-II in raw mode or PgBouncer in statement mode; connect ' +
      'directly, or through a pooler in transaction mode'
    throw new StatementError(new Error(message), outcome, 'transactions')
  }

  /** Throws unless the last statement is committed, without a warning that it may be lost. */
  expectCommit(): void {
    this.expectState('I', 'unknown')
    const warning = this.#commitWarning
    this.#commitWarning = undefined
    if (warning !== undefined) throw new StatementError(new Error(warning), 'unknown', 'failed')
  }

  /**
   * Whether the server has rolled back a statement and nothing else has happened: it responded with an ERROR, and is ready for the
   * next statement, outside of a transaction. After FATAL and PANIC, it closes the connection (PostgreSQL manual, section 54.2.8). The
   * SQLSTATE says nothing about it: a trigger can raise any.
   */
  async hasRolledBack(error: unknown): Promise<boolean> {
    // A pooler may keep the connection when the server has closed its own.
    if (!(error instanceof pg.DatabaseError) || error.severity === 'FATAL' || error.severity === 'PANIC')
      return false
    // pg sends it when the server is ready.
    if (!this.readyForQuery) await this.query('').catch(() => {})
    return this.readyForQuery && this.getTransactionStatus() === 'I'
  }
}
