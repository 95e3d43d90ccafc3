import { setTimeout as sleep } from 'node:timers/promises'
import { runner } from 'node-pg-migrate'
import pg from 'pg'
import { DatabaseUnavailableError, isForbidden, isLocked, isRefusal } from './failures.ts'
import { MigrationFailedError } from './migration-errors.ts'
import {
  MIGRATIONS_FOLDER,
  type MigrationFile,
  type MigrationPart,
  migrationLoader,
} from './migration-files.ts'
import { APPLIED_TABLE, appliedMigrations, invalidIndexesOf, recordChecksums } from './migration-history.ts'
import { lockMigrations, tryLockMigrations } from './migration-lock.ts'
import { planMigrations, statementRunner } from './migration-plan.ts'
import { checkMayCreate, checkOwner, checkRoles, grantPrivileges, type Roles } from './privileges.ts'
import { OutcomeUnknownError } from './transaction.ts'

/** How long to try to learn the outcome of a migration whose connection was lost, and how often, in milliseconds. */
const RECONNECT_TIMEOUT_MS = 20_000
const RECONNECT_INTERVAL_MS = 250

/** How long a migration that sets no limit of its own waits for a lock, in milliseconds. */
const LOCK_TIMEOUT_MS = 60_000

export interface MigrateOptions {
  /** A `postgres://` address that leads to the server itself: a pooler would lose the lock. */
  readonly url: string
  readonly direction: 'up' | 'down'
  /** How many steps; by default all that are pending for `up`, one for `down`. */
  readonly count?: number
  /** Roles to give what they need on the tables once these are as they should be. */
  readonly roles?: Roles
  /** Receives what was done for good, line by line. */
  readonly log: (line: string) => void
  /** Receives what takes long, line by line. */
  readonly notice?: (line: string) => void
}

/**
 * Applies or rolls back migrations, and returns the names of those it ran. All of them are one transaction, all or none,
 * except that one which is marked "(no transaction)" runs on its own, after those before it were committed.
 * Migrations of one database wait for each other: of several that start at once, the first does the work.
 *
 * @throws {UnknownMigrationError} where one is to be rolled back that a newer version has applied
 * @throws {MigrationOrderError} where one came out of order
 * @throws {MigrationsRunningError} where others run for longer than a minute; nothing has changed then
 * @throws {RoleError} where a role does not exist, or this one does not own the tables; nothing has changed then
 * @throws {MigrationFailedError} where a migration failed, or could not have a lock in time; it says what has changed
 * @throws {DatabaseUnavailableError} where the connection was lost before the commit; nothing has changed then
 * @throws {OutcomeUnknownError} where it was lost, and PostgreSQL cannot be asked what it has done
 * @throws whatever the database raises; the schema has not changed then, unless it was the grants that failed
 */
export async function migrate(options: MigrateOptions): Promise<string[]> {
  const { url, direction, count, roles = {}, log, notice = () => {} } = options
  let client = newClient(url)
  let isLost = false
  client.on('end', () => {
    isLost = true
  })
  try {
    await client.connect()
    await checkOwner(client, APPLIED_TABLE)
    await checkMayCreate(client, APPLIED_TABLE)
    await checkRoles(client, roles)
    await lockMigrations(statementRunner(client), notice)
    const planned = await planMigrations(statementRunner(client), direction, count)
    const run = await runMigrations(client, options)
    // The lost connection counts as what PostgreSQL has made of it.
    if (isLost) client = await reconnect(url)
    const database = statementRunner(client)
    const applied = await appliedMigrations(database)
    const done = planned.filter((name) => applied.includes(name) === (direction === 'up'))
    if (run.error === undefined || done.length > 0) await recordChecksums(database)
    for (const name of done) log(`${direction === 'up' ? 'Applied' : 'Rolled back'} ${name}`)
    if (run.error !== undefined) {
      if (!isLost || done.length < planned.length) throw await failureOf(client, run, done, direction, isLost)
      log('The connection was lost during the commit; PostgreSQL had done it.')
    }
    if (planned.length === 0) log(`No migration is ${direction === 'up' ? 'pending' : 'applied'}.`)
    await grantPrivileges(client, roles, log)
    return done
  } finally {
    await client.end()
  }
}

/** How a run of node-pg-migrate ended. */
interface Run {
  /** The migration that it began with last. */
  readonly last: { readonly migration: MigrationFile; readonly part: MigrationPart } | undefined
  /** Undefined where it succeeded. */
  readonly error: unknown
}

async function runMigrations(
  client: pg.Client,
  { direction, count, notice = () => {} }: MigrateOptions,
): Promise<Run> {
  let last: Run['last']
  const onStart = (migration: MigrationFile, part: MigrationPart): void => {
    last = { migration, part }
    if (!part.isTransactional) notice(`Running ${migration.name} outside a transaction; this can take long.`)
  }
  const silent = (): void => {}
  try {
    await runner({
      dbClient: client,
      dir: MIGRATIONS_FOLDER,
      migrationLoaderStrategies: [migrationLoader(onStart)],
      direction,
      migrationsTable: APPLIED_TABLE,
      singleTransaction: true,
      // This session has its lock already.
      noLock: true,
      logger: { debug: silent, info: silent, warn: silent, error: silent },
      ...(count === undefined ? {} : { count }),
    })
    return { last, error: undefined }
  } catch (error) {
    return { last, error }
  }
}

/** Says what a failed run means, by what it has left in the database. */
async function failureOf(
  client: pg.Client,
  { last, error }: Run,
  done: readonly string[],
  direction: 'up' | 'down',
  isLost: boolean,
): Promise<unknown> {
  if (last === undefined) return isLost ? new DatabaseUnavailableError(error) : error
  const { migration, part } = last
  if (part.isTransactional && done.length === 0) {
    if (isLost) return new DatabaseUnavailableError(error)
    if (isForbidden(error)) return error
  }
  return new MigrationFailedError({
    migration: migration.name,
    direction,
    reason: isLost ? 'the connection to PostgreSQL was lost' : reasonOf(error, last),
    holders: isLocked(error) ? await lockHolders(client, part.isTransactional) : [],
    isTransactional: part.isTransactional,
    done,
    invalidIndexes: await invalidIndexesOf(statementRunner(client), migration),
  })
}

/** What PostgreSQL says of a migration, with the line of its file where that is known; undefined for a lock timeout. */
function reasonOf(error: unknown, { migration, part }: NonNullable<Run['last']>): string | undefined {
  if (isLocked(error)) return undefined
  if (!(error instanceof pg.DatabaseError)) return error instanceof Error ? error.message : String(error)
  const detail = error.detail === undefined ? '' : ` (${error.detail.replace(/\.$/, '')})`
  const [statement = '', ...others] = part.statements
  const offset = Number(error.position) - 1
  if (others.length > 0 || !(offset < statement.length)) return `${error.message}${detail}`
  const line = part.line + statement.slice(0, offset).split('\n').length - 1
  return `${error.message}${detail}, in line ${line} of migrations/${migration.name}.sql`
}

function newClient(url: string): pg.Client {
  const client = new pg.Client({
    connectionString: url,
    application_name: 'petstore-inventory migrate',
    connectionTimeoutMillis: 10_000,
    lock_timeout: LOCK_TIMEOUT_MS,
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
    let reason: unknown = new Error('the session that was lost still runs')
    try {
      await client.connect()
      if (await tryLockMigrations(statementRunner(client))) return client
    } catch (error) {
      reason = error
    }
    await client.end().catch(() => {})
    if (isRefusal(reason) || performance.now() > end) throw new OutcomeUnknownError(reason)
    await sleep(RECONNECT_INTERVAL_MS)
  }
}

/**
 * The sessions that hold locks on tables of this schema, in words; outside a transaction also those with a snapshot, for
 * which `CREATE INDEX CONCURRENTLY` waits whatever they read (PostgreSQL manual, CREATE INDEX).
 */
async function lockHolders(client: pg.Client, isTransactional: boolean): Promise<string[]> {
  const { rows } = await client.query<{ holder: string }>(
    `WITH holders (pid, what) AS (
       SELECT pid, mode || ' on ' || relation::regclass FROM pg_locks
       WHERE locktype = 'relation' AND granted AND database = (
           SELECT oid FROM pg_database WHERE datname = current_database()
         ) AND relation IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p'))
       UNION
       -- Of the sessions of other roles, only a member of pg_read_all_stats sees the type and the times.
       SELECT pid, 'a snapshot' FROM pg_stat_activity
       WHERE $1 AND datname = current_database() AND backend_xmin IS NOT NULL
         AND coalesce(backend_type, 'client backend') = 'client backend'
     )
     SELECT format('PID %s (%s%s, %s%s: %s)', pid, usename,
              CASE WHEN application_name = '' THEN '' ELSE ', ' || application_name END, string_agg(what, ', ' ORDER BY what COLLATE "C"),
              ', for ' || extract(epoch FROM now() - coalesce(xact_start, query_start))::integer || ' s',
              left(regexp_replace(query, '\\s+', ' ', 'g'), 60)) AS holder
     FROM holders JOIN pg_stat_activity USING (pid)
     WHERE pid <> pg_backend_pid()
     GROUP BY pid, usename, application_name, xact_start, query_start, query
     ORDER BY pid`,
    [!isTransactional],
  )
  return rows.map(({ holder }) => holder)
}
