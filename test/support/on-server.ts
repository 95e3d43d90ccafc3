import pg from 'pg'

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
