import pg from 'pg'

/** A row whose values are text, so that nothing is rounded on the way. */
export type Row = Readonly<Record<string, string | null>>

/** Opens a connection that survives the end of the server, and on which every value arrives as text. */
export async function connectTo(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, types: { getTypeParser: () => String } })
  client.on('error', () => {})
  await client.connect()
  return client
}

/** Runs a statement on a connection of its own, and returns its rows. */
export async function onServer(url: string, text: string): Promise<Row[]> {
  const client = await connectTo(url)
  try {
    return (await client.query<Row>(text)).rows
  } finally {
    await client.end()
  }
}
