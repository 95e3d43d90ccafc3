import { once } from 'node:events'
import pg, { type TransactionStatus } from 'pg'
import { ConnectionFault } from './causes.ts'

declare module 'pg' {
  interface Client {
    /** Whether the server has said that it is ready for the next statement, and none has been sent since. */
    readonly readyForQuery: boolean
  }
}

/**
 * Throws unless the last statement has left the connection outside of a transaction (`I`), or in one (`T`), as it should have
 * (ReadyForQuery; PostgreSQL manual, section 54.7). Otherwise, what a statement of ours has done may be rolled back.
 */
export function expectState(found: TransactionStatus, expected: 'I' | 'T'): void {
  if (found === expected) return
  const fault =
    expected === 'I'
      ? 'a transaction was open after a statement that commits'
      : 'the transaction ended before its COMMIT'
  throw new ConnectionFault(
    'transactions',
    `${fault}: between this process and PostgreSQL is a connection pooler or proxy that mixes sessions, such as pgpool-II in raw ` +
      'mode or PgBouncer in statement mode; connect directly, or through a pooler in transaction mode',
  )
}

/**
 * Resolves to whether PostgreSQL has refused a statement and nothing else has happened: it responded with an ERROR, rolled back,
 * and is ready for the next statement, outside of a transaction. After FATAL and PANIC, it closes the connection (PostgreSQL
 * manual, section 54.2.8). The SQLSTATE says nothing about it: a trigger can raise any.
 */
export async function isOnlyRefused(client: pg.Client, error: unknown): Promise<boolean> {
  // A pooler may keep the connection when the server has closed its own.
  if (!(error instanceof pg.DatabaseError) || error.severity === 'FATAL' || error.severity === 'PANIC')
    return false
  if (!client.readyForQuery) {
    const settled = new AbortController()
    const { signal } = settled
    const events = [once(client.connection, 'readyForQuery', { signal }), once(client, 'end', { signal })]
    await Promise.race(events).catch(() => {})
    settled.abort()
    await Promise.allSettled(events)
  }
  return client.readyForQuery && client.getTransactionStatus() === 'I'
}
