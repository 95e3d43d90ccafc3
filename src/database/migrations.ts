import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Migration, PG_MIGRATE_LOCK_ID, runner } from 'node-pg-migrate'
import pg from 'pg'
import { DatabaseUnavailableError, isLocked, isRefusal } from './failures.ts'
import { type MigrationRecord, migrationRecords, recordChecksums } from './migration-history.ts'
import type { Database, StatementRunner } from './pool.ts'
import { checkOwner, checkRoles, grantPrivileges, type Roles } from './privileges.ts'
import { hasTable } from './server-status.ts'
import { OutcomeUnknownError } from './transaction.ts'

/** Plain SQL files, each with an up and a down part; the same place seen from `src` and from `dist`. */
const directory = fileURLToPath(new URL('../../migrations', import.meta.url))
const template = fileURLToPath(new URL('../../migrations/.template.sql', import.meta.url))

/** The table in which node-pg-migrate keeps what it has applied. */
const APPLIED_TABLE = 'pgmigrations'

/** How long to try to learn the outcome of a migration whose connection was lost, and how often, in milliseconds. */
const RECONNECT_TIMEOUT_MS = 20_000
const RECONNECT_INTERVAL_MS = 250

/** How long to wait for another migration of the same database to end, in milliseconds. */
const WAIT_FOR_OTHERS = 60_000

export interface MigrateOptions {
  /** A `postgres://` address that leads to the server itself: a pooler would lose the lock. */
  readonly url: string
  readonly direction: 'up' | 'down'
  /** How many steps; by default all that are pending for `up`, one for `down`. */
  readonly count?: number
  /** Roles to give what they need on the tables once these are as they should be. */
  readonly roles?: Roles
  /** Receives what is done, line by line. */
  readonly log: (line: string) => void
}

/** The newest migrations of the database are not this version's, so it does not know how to roll them back. */
export class UnknownMigrationError extends Error {
  override readonly name = 'UnknownMigrationError'

  constructor(migration: string) {
    super(
      `This version does not know the migration ${migration}. Roll it back with the version that brought it.`,
    )
  }
}

/** A migration is pending that is older than one that was applied. */
export class MigrationOrderError extends Error {
  override readonly name = 'MigrationOrderError'

  constructor(pending: string) {
    super(
      `The migration ${pending} is older than one that was applied, and would run out of order; nothing was changed. ` +
        'Give it a new name with "inventory migrate create", or restore the list of migrations that it is missing from.',
    )
  }
}

/** A table that a migration changes is in use, by the sessions that the message names. */
export class MigrationLockedError extends Error {
  override readonly name = 'MigrationLockedError'

  constructor(holders: readonly string[]) {
    super(
      `A table is in use, and the migration could not have it in time; nothing was changed. ${
        holders.length === 0 ? 'Nobody holds it any more' : `It is held by ${holders.join('; ')}`
      }. Run it again when that has ended, or end it: SELECT pg_terminate_backend(PID).`,
    )
  }
}

/**
 * Applies or rolls back migrations in one transaction, all or none, and returns the names of those it ran.
 * Migrations of one database wait for each other: of several that start at once, the first does the work.
 *
 * @throws {UnknownMigrationError} where one is to be rolled back that a newer version has applied
 * @throws {RoleError} where a role does not exist, or this one does not own the tables; nothing has changed then
 * @throws {DatabaseUnavailableError} where the connection was lost before the commit; nothing has changed then
 * @throws {OutcomeUnknownError} where it was lost, and PostgreSQL cannot be asked what it has done
 * @throws {MigrationOrderError} where one came out of order
 * @throws {MigrationLockedError} where a table could not be locked in time
 * @throws whatever the database raises; the schema has not changed then, unless it was the grants that failed
 */
export async function migrate({ url, direction, count, roles = {}, log }: MigrateOptions): Promise<string[]> {
  let client = newClient(url)
  let isLost = false
  client.on('end', () => {
    isLost = true
  })
  try {
    await client.connect()
    await checkOwner(client, APPLIED_TABLE)
    await checkRoles(client, roles)
    if (direction === 'down') await checkKnown(client, count ?? 1)
    else await checkOrder(runnerOf(client))
    const before = await appliedMigrations(runnerOf(client))
    let ran: string[]
    try {
      const migrations = await runner({
        dbClient: client,
        dir: directory,
        direction,
        migrationsTable: APPLIED_TABLE,
        singleTransaction: true,
        advisoryLockMode: 'wait',
        log,
        ...(count === undefined ? {} : { count }),
      })
      ran = migrations.map(({ name }) => name)
    } catch (error) {
      if (isLocked(error)) throw new MigrationLockedError(await lockHolders(client))
      if (!isLost) throw error
      client = await reconnect(url)
      const after = await appliedMigrations(runnerOf(client))
      ran = [...before, ...after].filter((name) => before.includes(name) !== after.includes(name))
      if (ran.length === 0) throw new DatabaseUnavailableError(error)
      log('The connection was lost during the commit; PostgreSQL had done it.')
    }
    await recordChecksums(runnerOf(client), APPLIED_TABLE, directory, await knownMigrations())
    await grantPrivileges(client, roles, log)
    return ran
  } finally {
    await client.end()
  }
}

function newClient(url: string): pg.Client {
  const client = new pg.Client({
    connectionString: url,
    application_name: 'petstore-inventory migrate',
    connectionTimeoutMillis: 10_000,
    // Bounds the wait for the others. The migrations set a far shorter one for the tables that they change.
    lock_timeout: WAIT_FOR_OTHERS,
  })
  // A connection that breaks between two statements fails the next one; without a listener it would end the process.
  client.on('error', () => {})
  return client
}

/**
 * Connects again, once the lost connection is gone from the server: it held the lock that this one waits for, so what it
 * was doing is decided.
 *
 * @throws {OutcomeUnknownError} where that cannot be had in time
 */
async function reconnect(url: string): Promise<pg.Client> {
  const end = performance.now() + RECONNECT_TIMEOUT_MS
  for (;;) {
    const client = newClient(url)
    try {
      await client.connect()
      await client.query('SELECT pg_advisory_lock($1)', [PG_MIGRATE_LOCK_ID])
      return client
    } catch (error) {
      await client.end().catch(() => {})
      if (isRefusal(error) || performance.now() > end) throw new OutcomeUnknownError(error)
    }
    await sleep(RECONNECT_INTERVAL_MS)
  }
}

function runnerOf(client: pg.Client): StatementRunner {
  return {
    async query<Row extends pg.QueryResultRow>(text: string, values: readonly unknown[] = []) {
      return (await client.query<Row>(text, [...values])).rows
    },
  }
}

async function checkOrder(database: StatementRunner): Promise<void> {
  const late = (await migrationHistory(database)).find(({ state }) => state === 'out of order')
  if (late !== undefined) throw new MigrationOrderError(late.name)
}

/** The sessions that hold locks on tables of this schema, in words. */
async function lockHolders(client: pg.Client): Promise<string[]> {
  const { rows } = await client.query<{ holder: string }>(
    `SELECT DISTINCT format('PID %s (%s%s, %s on %s, for %s s: %s)', pid, usename,
              CASE WHEN application_name = '' THEN '' ELSE ', ' || application_name END,
              mode, relation::regclass, extract(epoch FROM now() - coalesce(xact_start, query_start))::integer,
              left(regexp_replace(query, '\\s+', ' ', 'g'), 60)) AS holder
     FROM pg_locks JOIN pg_stat_activity USING (pid)
     WHERE locktype = 'relation' AND granted AND pid <> pg_backend_pid() AND database = (
         SELECT oid FROM pg_database WHERE datname = current_database()
       ) AND relation IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p'))
     ORDER BY holder`,
  )
  return rows.map(({ holder }) => holder)
}

/** What the database and this version know of the migrations, in their order. */
export async function migrationHistory(database: StatementRunner): Promise<MigrationRecord[]> {
  return migrationRecords(database, APPLIED_TABLE, directory, await knownMigrations())
}

/** The SQL that `migrate` would run now, without running any of it. */
export async function migrationSql(
  url: string,
  direction: 'up' | 'down',
  count: number | undefined,
): Promise<string> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 10_000 })
  client.on('error', () => {})
  const steps: string[] = []
  try {
    await client.connect()
    if (direction === 'down') await checkKnown(client, count ?? 1)
    else await checkOrder(runnerOf(client))
    // The runner makes the table of the migrations, which must not stay.
    await client.query('BEGIN')
    await runner({
      dbClient: client,
      dir: directory,
      direction,
      migrationsTable: APPLIED_TABLE,
      singleTransaction: false,
      noLock: true,
      dryRun: true,
      verbose: true,
      logger: { debug: (text) => steps.push(text), info: () => {}, warn: () => {}, error: () => {} },
      ...(count === undefined ? {} : { count }),
    })
    await client.query('ROLLBACK')
  } finally {
    await client.end()
  }
  // Each comes with a transaction of its own, and runs in one for all.
  const all = steps.map((step) =>
    step
      .trim()
      .replace(/^BEGIN;\n/, '')
      .replace(/\nCOMMIT;$/, ''),
  )
  return all.length === 0 ? '-- No migration is pending.' : ['BEGIN;', ...all, 'COMMIT;'].join('\n')
}

/** What rolling back migrations takes with it. */
export interface Rollback {
  /** The migrations, the newest first. */
  readonly names: readonly string[]
  /** Tables with the number of their rows, and columns, that the migrations drop. */
  readonly losses: readonly string[]
}

/**
 * Says which migrations `migrate` would roll back now, and what they drop.
 *
 * @throws {UnknownMigrationError} where one of them is not this version's
 */
export async function planRollback(database: Database, count: number): Promise<Rollback> {
  if (!(await hasTable(database, APPLIED_TABLE))) return { names: [], losses: [] }
  const rows = await database.query<{ name: string }>(NEWEST_APPLIED, [count])
  const known = await knownMigrations()
  const losses: string[] = []
  for (const { name } of rows) {
    if (!known.includes(name)) throw new UnknownMigrationError(name)
    const [, down = ''] = (await readFile(path.join(directory, `${name}.sql`), 'utf8')).split(DOWN_MARK)
    for (const [, table = ''] of down.matchAll(/\bDROP TABLE (?:IF EXISTS )?(\w+)/gi)) {
      if (!(await hasTable(database, table))) continue
      const [found] = await database.query<{ count: bigint }>(`SELECT count(*) FROM ${table}`)
      losses.push(`the table ${table} with ${found?.count.toLocaleString('en-US')} rows`)
    }
    for (const [, table = '', column = ''] of down.matchAll(
      /\bALTER TABLE (\w+)[^;]*?\bDROP COLUMN (?:IF EXISTS )?(\w+)/gi,
    )) {
      losses.push(`the column ${column} of ${table}`)
    }
  }
  return { names: rows.map(({ name }) => name), losses }
}

/** What separates the two parts of a migration. */
const DOWN_MARK = /^-- Down Migration$/m

/** In the order in which node-pg-migrate rolls back. */
const NEWEST_APPLIED = `SELECT name FROM ${APPLIED_TABLE} ORDER BY run_on DESC, id DESC LIMIT $1`

/** Makes sure that this version knows the newest so many migrations that the database has seen. */
async function checkKnown(client: pg.Client, count: number): Promise<void> {
  const { rows: found } = await client.query<{ exists: boolean }>(
    'SELECT to_regclass($1) IS NOT NULL AS exists',
    [APPLIED_TABLE],
  )
  if (found[0]?.exists !== true) return
  const known = await knownMigrations()
  const { rows } = await client.query<{ name: string }>(NEWEST_APPLIED, [count])
  const unknown = rows.find(({ name }) => !known.includes(name))
  if (unknown !== undefined) throw new UnknownMigrationError(unknown.name)
}

/** Writes a new, empty migration into a folder, named after the present moment in UTC, and returns its path. */
export function createMigration(name: string, folder: string): Promise<string> {
  return Migration.create(name, folder, { filenameFormat: 'utc', templateFileName: template })
}

/** The names of all migrations that this version brings, in their order. */
export async function knownMigrations(): Promise<string[]> {
  const files = await readdir(directory)
  return files
    .filter((file) => !file.startsWith('.') && file.endsWith('.sql'))
    .map((file) => file.slice(0, -'.sql'.length))
    .sort()
}

/**
 * Those of the known migrations that the database has not seen. A database that has seen more is newer, which is
 * how a rolling deployment looks from the older version's side.
 */
export async function pendingMigrations(database: Database, known: readonly string[]): Promise<string[]> {
  const applied = new Set(await appliedMigrations(database))
  return known.filter((name) => !applied.has(name))
}

/** The names of all migrations that the database has seen, in their order. */
export async function appliedMigrations(database: StatementRunner): Promise<string[]> {
  if (!(await hasTable(database, APPLIED_TABLE))) return []
  const rows = await database.query<{ name: string }>(`SELECT name FROM ${APPLIED_TABLE} ORDER BY name`)
  return rows.map((row) => row.name)
}
