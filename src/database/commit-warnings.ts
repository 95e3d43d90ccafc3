import type pg from 'pg'

/** SQLSTATE class of warnings. Not the severity, which PostgreSQL translates. */
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
 * Watches the commit of one statement, from now until the returned function is called. That one returns the warning which
 * came with the commit, if there was one. The server first completes the statement (CommandComplete) and then commits, so
 * a later warning is the commit's. What triggers and functions raise comes earlier and says nothing about it (PostgreSQL
 * manual, section 54.2.3).
 */
export function watchCommit(client: pg.Client): () => UncertainCommitError | undefined {
  let isComplete = false
  let warning: UncertainCommitError | undefined
  const onComplete = (): void => {
    isComplete = true
  }
  const onNotice = ({ code, message }: { code: string | undefined; message: string | undefined }): void => {
    if (isComplete && WARNING.test(code ?? '')) warning ??= new UncertainCommitError(message)
  }
  const { connection } = client
  connection.on('commandComplete', onComplete)
  client.on('notice', onNotice)
  return () => {
    connection.off('commandComplete', onComplete)
    client.off('notice', onNotice)
    return warning
  }
}
