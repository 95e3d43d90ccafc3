import { randomBytes } from 'node:crypto'
import pg from 'pg'
import type { Test } from 'tap'
import { hashApiKey, makeApiKey } from '../../src/api-keys/key.ts'
import { eventually } from './eventually.ts'
import { hold, onServer, type Row } from './on-server.ts'
import { replaceDatabase } from './server.ts'

/** A database of a test's own, and a way to look into it that does not go through the service. */
export type TestDatabase = Awaited<ReturnType<typeof testDatabase>>

/** Entries, each a line of CSV, or how many `addMany` adds. */
export type Entries = readonly string[] | number

/** Makes a database, migrated and with these entries, or with `empty` without a schema, that goes away with the test. */
export async function testDatabase(
  t: Test,
  { empty = false, entries = [] }: { readonly empty?: boolean; readonly entries?: Entries } = {},
) {
  const { TEST_SERVER_URL: serverUrl, TEST_TEMPLATE: template, TEST_TEMPLATE_STRATEGY = '' } = process.env
  if (!serverUrl || !template) throw new Error('Run the tests with "npm test", which provides the database.')
  const name = `test_${randomBytes(8).toString('hex')}`
  const copied = empty ? 'template1' : `${template} ${TEST_TEMPLATE_STRATEGY}`
  await onServer(serverUrl, `CREATE DATABASE ${name} TEMPLATE ${copied}`)
  const url = replaceDatabase(serverUrl, name)
  const pool = new pg.Pool({ connectionString: url, max: 4, types: { getTypeParser: () => String } })
  pool.on('error', () => {})
  t.teardown(async () => {
    await pool.end()
    await onServer(serverUrl, `DROP DATABASE ${name} WITH (FORCE)`)
  })
  const database = {
    name,
    url,
    hold: (statement: string, end?: 'COMMIT' | 'ROLLBACK') => hold(t, url, statement, end),
    /** Runs a statement as the owner; every value arrives as text, so that nothing is rounded on the way. */
    query: async (text: string, values?: unknown[]) => (await pool.query<Row>(text, values)).rows,
  }
  await (typeof entries === 'number' ? addMany(database, entries) : addEntries(database, entries))
  return database
}

/** Adds entries to the inventory, each a line of CSV. */
export async function addEntries(database: TestDatabase, entries: readonly string[]): Promise<void> {
  const insert = 'INSERT INTO inventory (pet_id, quantity, status) VALUES ($1, $2, $3)'
  for (const entry of entries) await database.query(insert, entry.split(','))
}

/** Adds the pets from 1 to `count`, each with the quantity 0. */
export async function addMany({ query }: Pick<TestDatabase, 'query'>, count: number, status = 'sold') {
  await query(`INSERT INTO inventory SELECT n, 0, '${status}' FROM generate_series(1, ${count}) n`)
}

/** The whole inventory, as the lines of CSV that an export has below its header. */
export async function readStock(database: Pick<TestDatabase, 'query'>): Promise<string> {
  const rows = await database.query('SELECT pet_id, quantity, status FROM inventory ORDER BY pet_id')
  return rows.map((row) => Object.values(row).join(',')).join('\n')
}

/** Adds an API key that was created a day ago and expires after an interval of PostgreSQL from now, or never; returns it. */
export async function addKey(database: TestDatabase, name: string, expires: string | null = null) {
  const key = makeApiKey()
  await database.query(
    "INSERT INTO api_keys (name, digest, created_at, expires_at) VALUES ($1, decode($2, 'hex'), now() - interval '1 day', now() + $3::interval)",
    [name, hashApiKey(key), expires],
  )
  return key
}

/** The sessions of clients of the database, not of autovacuum, that meet a condition. */
export const findSessions = ({ query }: TestDatabase, condition: string) =>
  query(`SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND ${condition}`)

/** Resolves when there are at least that many such sessions; with 0, when there is none. */
export async function waitForSessions(database: TestDatabase, condition: string, count = 1): Promise<void> {
  await eventually(`${count || 'no'} sessions with ${condition}`, async () => {
    const { length } = await findSessions(database, condition)
    return count === 0 ? length === 0 : length >= count
  })
}

/** Resolves when at least that many of them wait for a lock. */
export const waitForLocks = (database: TestDatabase, count?: number): Promise<void> =>
  waitForSessions(database, "wait_event_type = 'Lock'", count)

/** Makes a role without any privileges that may log in. To be called before the database is made, which has to go first. */
export async function testRole(t: Test) {
  const { TEST_SERVER_URL: serverUrl = '' } = process.env
  const name = `test_role_${randomBytes(8).toString('hex')}`
  const password = randomBytes(16).toString('hex')
  await onServer(serverUrl, `CREATE ROLE ${name} LOGIN PASSWORD '${password}'`)
  t.teardown(() => onServer(serverUrl, `DROP ROLE ${name}`))
  return {
    name,
    /** Occurs nowhere else, so that a text can be searched for it. */
    password,
    /** The address of a database as this role. */
    toUrl(databaseUrl: string): string {
      const url = new URL(databaseUrl)
      url.username = name
      url.password = password
      return url.href
    },
  }
}
