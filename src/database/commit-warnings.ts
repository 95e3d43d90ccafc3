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
 * Sends COMMIT and returns the response.
 *
 * @throws {UncertainCommitError} if a warning comes with the response
 */
export async function commitWithoutWarning(client: pg.Client): Promise<pg.QueryResult> {
  let warning: UncertainCommitError | undefined
  const onNotice = (notice: Notice): void => {
    if (isWarning(notice)) warning ??= new UncertainCommitError(notice.message)
  }
  client.on('notice', onNotice)
  try {
    const result = await client.query('COMMIT')
    if (warning !== undefined) throw warning
    return result
  } finally {
    client.off('notice', onNotice)
  }
}

/**
 * Watches the implicit commit of each statement of a connection. The server completes the statement (CommandComplete) before
 * it commits, so a warning after that is about the commit, or of a deferred trigger. Warnings of other triggers and of functions come
 * earlier (PostgreSQL manual, section 54.2.3). One watch serves all statements, because adding listeners per statement is slow.
 */
export class CommitWatch {
  #isComplete = false
  #warning: UncertainCommitError | undefined

  /** Listens until the connection is closed. */
  constructor(client: pg.Client) {
    client.connection.on('commandComplete', () => {
      this.#isComplete = true
    })
    client.on('notice', (notice: Notice) => {
      if (this.#isComplete && isWarning(notice)) this.#warning ??= new UncertainCommitError(notice.message)
    })
  }

  /** Call it before each statement. Clears the warning of the previous one. */
  begin(): void {
    this.#isComplete = false
    this.#warning = undefined
  }

  /** The warning that came with the commit of the statement, if any. Read it when the statement has succeeded. */
  get warning(): UncertainCommitError | undefined {
    return this.#warning
  }
}

interface Notice {
  readonly code: string | undefined
  readonly message: string | undefined
  /** The functions that were running. */
  readonly where: string | undefined
}

/** Whether the notice is a warning of the commit itself. Deferred triggers run then, too. */
function isWarning({ code, where }: Notice): boolean {
  return where === undefined && !SUCCESS_CLASS.test(code ?? '00')
}
