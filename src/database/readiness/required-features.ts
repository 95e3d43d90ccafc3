import type { Database } from '../database.ts'
import { causeOf, DatabaseUnavailableError } from '../errors/errors.ts'
import { isUnknownColumn, isUnsupportedFeature } from '../errors/sqlstate.ts'

/** A feature of PostgreSQL that the service needs, and a statement that fails without it and changes nothing. */
interface Feature {
  /** Completes the sentence "The database does not support …". */
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
  {
    name: 'the columns of pg_attribute and pg_index, the system catalogs',
    text: `SELECT attname, atttypid, attgenerated, indisprimary, indisvalid, indimmediate, indnkeyatts, indkey[0]
           FROM pg_attribute JOIN pg_index ON indrelid = attrelid LIMIT 0`,
  },
  {
    name: 'concat_ws(), array_agg() and string_agg()',
    text: `SELECT concat_ws(' ', 1), array_agg(n) FILTER (WHERE n > 0), string_agg(n::text, ',' ORDER BY n)
           FROM (SELECT 1 AS n) AS one`,
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

/** The names of the features that are asked for, in that order. */
export const requiredFeatures: readonly string[] = features.map(({ name }) => name)

/** A feature that the server lacks. */
export interface MissingFeature {
  readonly name: string
  /** The error that the server reported. */
  readonly cause: unknown
}

/**
 * Finds the first feature that the service needs and the server lacks; undefined if it has all. Tries each of them, because the
 * version number of a server that is merely compatible with PostgreSQL does not say what it supports. The tables must exist.
 *
 * @throws {DatabaseUnavailableError} if the server does not respond
 */
export async function missingFeature(database: Database): Promise<MissingFeature | undefined> {
  for (const { name, text } of features) {
    const cause = await refusalOf(() => database.query(text))
    if (cause !== undefined) return { name, cause }
  }
  return undefined
}

/**
 * Runs a statement, and returns the error if the server does not support it; undefined otherwise. Any other error shows that
 * the server knows the statement, for example if `inventory` is a materialized view, whose rows cannot be locked.
 */
async function refusalOf(run: () => Promise<unknown>): Promise<unknown> {
  try {
    await run()
    return undefined
  } catch (error) {
    // An unknown column is a missing feature, because the statements only use system columns.
    if (isUnsupportedFeature(error) || isUnknownColumn(error)) return causeOf(error)
    if (error instanceof DatabaseUnavailableError) throw error
    return undefined
  }
}
