import { DatabaseUnavailableError, isUnknownColumn, isUnsupportedFeature } from './failures.ts'
import type { Database } from './pool.ts'

/** Something that the service needs of the server, and a statement that fails without it and changes nothing. */
interface Feature {
  /** In words that follow "does not support". */
  readonly name: string
  readonly text: string
}

const features: readonly Feature[] = [
  {
    name: 'pg_current_snapshot(), the snapshot of a transaction',
    text: 'SELECT pg_current_snapshot()::text',
  },
  { name: 'xmin, the system column of row versions', text: 'SELECT xmin FROM pg_class LIMIT 1' },
  { name: 'age(xid), the age of a transaction', text: "SELECT age('3'::xid)" },
  {
    name: 'pg_postmaster_start_time(), the start of the server',
    text: 'SELECT pg_postmaster_start_time(), pg_backend_pid()',
  },
  { name: 'row_security_active()', text: "SELECT row_security_active('inventory'::regclass::oid)" },
  {
    name: 'unnest() of several arrays',
    text: "SELECT FROM unnest('{}'::bigint[], '{}'::integer[]) AS new (pet_id, quantity)",
  },
  { name: 'WITH … AS MATERIALIZED', text: 'WITH one AS MATERIALIZED (SELECT 1) SELECT FROM one' },
  {
    name: 'FOR NO KEY UPDATE SKIP LOCKED',
    text: 'SELECT FROM inventory WHERE pet_id = 0 FOR NO KEY UPDATE SKIP LOCKED',
  },
]

const COPY = 'COPY (SELECT …) TO STDOUT'

/** A feature that the server lacks. */
export interface MissingFeature {
  readonly name: string
  /** What the server said. */
  readonly cause: unknown
}

/**
 * Finds the first feature that the service needs and the server does not have, by asking for each of them: what a server
 * supports that only speaks PostgreSQL's protocol, no version number tells. The tables must be there.
 *
 * @throws {DatabaseUnavailableError} when the server does not answer
 */
export async function missingFeature(database: Database): Promise<MissingFeature | undefined> {
  for (const { name, text } of features) {
    const cause = await refusalOf(() => database.query(text))
    if (cause !== undefined) return { name, cause }
  }
  const cause = await refusalOf(async () => {
    for await (const _ of database.copy('SELECT 1'));
  })
  return cause === undefined ? undefined : { name: COPY, cause }
}

/**
 * The error by which the server shows that it does not know what is asked; undefined if it does. A server that refuses it
 * for another reason, such as locks on the rows of a materialized view in the table's place, knows it.
 */
async function refusalOf(ask: () => Promise<unknown>): Promise<unknown> {
  try {
    await ask()
    return undefined
  } catch (error) {
    // The columns that are asked for here are PostgreSQL's own.
    if (isUnsupportedFeature(error) || isUnknownColumn(error))
      return error instanceof DatabaseUnavailableError ? error.cause : error
    if (error instanceof DatabaseUnavailableError) throw error
    return undefined
  }
}
