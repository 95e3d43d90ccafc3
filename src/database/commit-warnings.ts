import type pg from 'pg'

/**
 * SQLSTATE class of notices that report no problem. Warnings have class 01 or, from Citus, the class of the error that they
 * report. The severity cannot be used, because PostgreSQL translates it.
 */
const SUCCESS_CLASS = /^00/

/**
 * PostgreSQL has committed and sent a warning: the change is stored, but is lost if this server is lost. An example is
 * "canceling wait for synchronous replication due to user request". Citus, which commits on several servers, also warns if
 * one of them did not commit ("failed to commit transaction on …").
 */
export class UncertainCommitError extends Error {
  override readonly name = 'UncertainCommitError'
}

/**
 * Watches the commits of a connection. The server completes a statement (CommandComplete) before it commits it, so a warning after
 * that is about the commit, or of a deferred trigger, which has a context. Warnings of other triggers and of functions come earlier
 * (PostgreSQL manual, section 54.2.3). One watch serves all statements, because adding listeners per statement is slow.
 */
export class CommitWatch {
  #isCommitting = false
  #warning: UncertainCommitError | undefined

  /** Listens until the connection is closed. */
  constructor(client: pg.Client) {
    client.connection.on('commandComplete', () => {
      this.#isCommitting = true
    })
    client.on('notice', ({ code = '00', message, where }) => {
      if (!this.#isCommitting || where !== undefined || SUCCESS_CLASS.test(code)) return
      this.#warning ??= new UncertainCommitError(message)
    })
  }

  /** Call it before each statement, with `true` before COMMIT itself. Clears the warning of the previous one. */
  begin(isCommit = false): void {
    this.#isCommitting = isCommit
    this.#warning = undefined
  }

  /** Throws the warning that came with the commit of the statement, if any. Call it when the statement has succeeded. */
  check(): void {
    if (this.#warning !== undefined) throw this.#warning
  }
}
