import pg from 'pg'
import type { Test } from 'tap'

/** A row whose values are text, so that nothing is rounded on the way. */
export type Row = Readonly<Record<string, string | null>>

/** Runs a statement on a connection of its own, and returns its rows. */
export async function onServer(url: string, text: string): Promise<Row[]> {
  const client = new pg.Client({ connectionString: url, types: { getTypeParser: () => String } })
  client.on('error', () => {})
  await client.connect()
  try {
    return (await client.query<Row>(text)).rows
  } finally {
    await client.end()
  }
}

/**
 * Runs a statement in a transaction that stays open, with the locks it took, until the returned function is called, which rolls it
 * back unless told otherwise, or the test ends.
 */
export async function hold(t: Test, url: string, statement: string, end: 'COMMIT' | 'ROLLBACK' = 'ROLLBACK') {
  const client = new pg.Client({ connectionString: url })
  client.on('error', () => {})
  t.teardown(() => client.end())
  await client.connect()
  await client.query('BEGIN')
  await client.query(statement)
  return async (): Promise<void> => {
    await client.query(end)
    await client.end()
  }
}
