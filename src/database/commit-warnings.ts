import type pg from 'pg'

/**
 * SQLSTATE class of notices that say nothing of a failure. Warnings have class 01, or that of the error which they report,
 * as Citus's have. Not the severity, which PostgreSQL translates.
 */
const HARMLESS = /^00/

/**
 * A commit that PostgreSQL has answered with success and a warning: the change is there, and may be lost with this
 * server. An example is "canceling wait for synchronous replication due to user request"; an extension that commits on
 * several servers warns in the same way when one of them did not (Citus: "failed to commit transaction on …").
 */
export class UncertainCommitError extends Error {
  override readonly name = 'UncertainCommitError'
}

/** Runs a COMMIT, and rejects if a warning comes with its answer. */
export async function commitWithoutWarning(client: pg.Client): Promise<pg.QueryResult> {
  let warning: UncertainCommitError | undefined
  const onNotice = (notice: Notice): void => {
    if (isWarning(notice)) warning ??= new UncertainCommitError(notice.message)
  }
  client.on('notice', onNotice)
  try {
    const answer = await client.query('COMMIT')
    if (warning !== undefined) throw warning
    return answer
  } finally {
    client.off('notice', onNotice)
  }
}

/**
 * Watches the commits of a connection, one statement after another. The server first completes the statement
 * (CommandComplete) and then commits, so a later warning is the commit's. What triggers and functions raise comes earlier
 * and says nothing about it (PostgreSQL manual, section 54.2.3).
 */
class CommitWatch {
  #isComplete = false
  #warning: UncertainCommitError | undefined

  /** Listens as long as the connection lives. */
  constructor(client: pg.Client) {
    client.connection.on('commandComplete', () => {
      this.#isComplete = true
    })
    client.on('notice', (notice: Notice) => {
      if (this.#isComplete && isWarning(notice)) this.#warning ??= new UncertainCommitError(notice.message)
    })
  }

  /** Forgets the statement before. To be called when the next one is sent. */
  begin(): void {
    this.#isComplete = false
    this.#warning = undefined
  }

  /** The warning that came with the commit of the statement, if there was one. To be read once its outcome is known. */
  get warning(): UncertainCommitError | undefined {
    return this.#warning
  }
}

const watches = new WeakMap<pg.Client, CommitWatch>()

/** The watch of a connection. There is one for all of its statements, as listeners for each would cost more than the rest. */
export function commitWatchOf(client: pg.Client): CommitWatch {
  const known = watches.get(client)
  if (known !== undefined) return known
  const watch = new CommitWatch(client)
  watches.set(client, watch)
  return watch
}

interface Notice {
  readonly code: string | undefined
  readonly message: string | undefined
}

function isWarning({ code }: Notice): boolean {
  return !HARMLESS.test(code ?? '00')
}
