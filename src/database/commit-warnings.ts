import type pg from 'pg'

/**
 * The functions of PostgreSQL and of Citus that warn when a commit is not everywhere where it should be. PostgreSQL has committed
 * then, and the change is lost if this server is lost ("canceling wait for synchronous replication due to user request"); Citus,
 * which commits on several servers, has not committed on one of them ("failed to commit transaction on …"). Everything else may
 * warn at any time: functions of the operator, auto_explain, pgaudit. The text cannot be used, because PostgreSQL translates it.
 */
const COMMIT_ROUTINES: readonly (string | undefined)[] = [
  'SyncRepWaitForLSN',
  'FinishRemoteTransactionCommit',
]

/** PostgreSQL has committed and sent a warning, so that the change may be lost. */
export class UncertainCommitError extends Error {
  override readonly name = 'UncertainCommitError'
}

/** Watches a connection for warnings about commits. One watch serves all statements, because adding listeners is slow. */
export class CommitWatch {
  #warning: UncertainCommitError | undefined

  /** Listens until the connection is closed. */
  constructor(client: pg.Client) {
    client.on('notice', ({ routine, message }) => {
      if (COMMIT_ROUTINES.includes(routine)) this.#warning = new UncertainCommitError(message)
    })
  }

  /** Throws the warning that came with the commit of the statement, if any. Call it when the statement has succeeded. */
  check(): void {
    const warning = this.#warning
    this.#warning = undefined
    if (warning !== undefined) throw warning
  }
}
