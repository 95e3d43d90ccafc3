import type pg from 'pg'

/** SQLSTATE class of warnings. PostgreSQL translates the severity, so that cannot be used. */
const WARNING = /^01/

/**
 * A commit that PostgreSQL has answered with success and a warning: the change is there, and may be lost with this
 * server. An example is "canceling wait for synchronous replication due to user request"; an extension that commits on
 * several servers warns in the same way when one of them did not (Citus: "failed to commit transaction on …").
 */
export class UncertainCommitError extends Error {
  override readonly name = 'UncertainCommitError'
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
    client.on('notice', ({ code, message }: { code: string | undefined; message: string | undefined }) => {
      if (this.#isComplete && WARNING.test(code ?? '')) this.#warning ??= new UncertainCommitError(message)
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
