import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { causeOf, DatabaseUnavailableError, ReadOnlyServerError } from '../errors/errors.ts'
import { isRefusal, messageWithDetail } from '../errors/failures.ts'
import { isForbidden, isLocked } from '../errors/sqlstate.ts'
import { OutcomeUnknownError } from '../operator/commit-outcome.ts'
import { connect, operatorClient, reportOutage, statementRunner } from '../operator/operator-client.ts'
import { askServer } from '../server/session-server.ts'
import { APPLIED_TABLE, appliedMigrations } from './applied.ts'
import { MigrationFailedError } from './errors.ts'
import type { MigrationFile, MigrationPart } from './files.ts'
import { invalidIndexesOf, recordChecksums } from './history.ts'
import { lockMigrations, tryLockMigrations } from './lock.ts'
import { planMigrations } from './plan.ts'
import {
  checkMayCreate,
  checkOwner,
  checkRoles,
  GrantError,
  type Grants,
  grantPrivileges,
} from './privileges.ts'
import { runMigrationFiles } from './runner.ts'

/** How long to keep reconnecting after a connection was lost, to find out the outcome, and the interval between attempts. */
const RECONNECT_TIMEOUT_MS = 20_000
const RECONNECT_INTERVAL_MS = 250

/** How long PostgreSQL may take to say whether it accepts writes. */
const SERVER_TIMEOUT_MS = 5000

/**
 * Turns off the time limits that the role or the database may have for its sessions: building an index of a large table takes
 * long. PostgreSQL has `transaction_timeout` since version 17.
 */
const NO_TIME_LIMITS = `SELECT set_config(name, '0', false) FROM pg_settings
                        WHERE name IN ('statement_timeout', 'transaction_timeout')`

/** How long a migration waits for a lock, unless it sets `lock_timeout` itself. */
const LOCK_TIMEOUT_MS = 60_000

export interface MigrateOptions {
  /** A `postgres://` address of the server itself: behind a connection pooler, the lock would be lost. */
  readonly url: string
  readonly direction: 'up' | 'down'
  /** Maximum number of migrations. By default, all pending ones are applied, or one is rolled back. */
  readonly count?: number
  /** Roles that get privileges on the tables after the migrations. */
  readonly grants?: Grants
  /** Called with a line for each change that is committed. */
  readonly log: (line: string) => void
  /** Called with a line before each step that may take long. */
  readonly notice?: (line: string) => void
}

/**
 * Applies or rolls back migrations, then grants privileges to the roles. Returns the names of the migrations that it ran. They
 * run in one transaction, except that a migration marked "(no transaction)" runs on its own, after the previous ones were
 * committed. Processes that migrate the same database wait for each other, so that the first one does the work.
 *
 * @throws {UnknownMigrationError} if a migration to roll back was applied by another version; nothing has changed
 * @throws {MigrationOrderError} if a pending migration is older than an applied one; nothing has changed
 * @throws {MigrationsRunningError} if another session runs migrations for more than a minute; nothing has changed
 * @throws {RoleError} if a role does not exist or the current one does not own the tables; nothing has changed
 * @throws {MigrationFailedError} if a migration failed or did not get a lock in time; the message says what has changed
 * @throws {GrantError} if the migrations were committed, but not the grants
 * @throws {DatabaseUnavailableError} if the server cannot be reached or is read-only, or the connection was lost before the
 *   commit; nothing has changed unless `log` was called
 * @throws {OutcomeUnknownError} if the connection was lost and the outcome cannot be found out
 * @throws any other error of the database; nothing has changed unless `log` was called
 */
export async function migrate(options: MigrateOptions): Promise<string[]> {
  const { url, direction, grants, log } = options
  let client = newClient(url)
  let lost: Error | undefined
  client.on('error', (error) => {
    lost ??= error
  })
  try {
    await connect(client)
    const planned = await reportOutage(client, () => prepare(client, options))
    const run = await runMigrations(client, options)
    // The database shows whether the migrations were committed before the connection was lost.
    if (lost !== undefined) client = await reconnect(url)
    const database = statementRunner(client)
    const applied = await reportOutage(client, () => appliedMigrations(database))
    const done = planned.filter((name) => applied.includes(name) === (direction === 'up'))
    for (const name of done) log(`${direction === 'up' ? 'Applied' : 'Rolled back'} ${name}`)
    if (run.error === undefined || done.length > 0)
      await reportOutage(client, () => recordChecksums(database))
    if (run.error !== undefined) {
      if (lost === undefined || done.length < planned.length)
        throw await failureOf(client, run, done, direction, lost)
      log('The connection was lost during the commit; PostgreSQL had done it.')
    }
    if (planned.length === 0) log(`No migration is ${direction === 'up' ? 'pending' : 'applied'}.`)
    if (grants !== undefined) await grant(client, grants, log)
    return done
  } finally {
    await client.end()
  }
}

/** @throws {GrantError} if PostgreSQL refuses the grants or cannot serve */
async function grant(client: pg.Client, grants: Grants, log: (line: string) => void): Promise<void> {
  try {
    await reportOutage(client, () => grantPrivileges(client, grants, log))
  } catch (error) {
    const isKnown = error instanceof DatabaseUnavailableError || error instanceof pg.DatabaseError
    throw isKnown ? new GrantError(causeOf(error)) : error
  }
}

/** Checks that migrations can run, takes the lock, and returns the names of the migrations to run. */
async function prepare(
  client: pg.Client,
  { direction, count, grants, notice = () => {} }: MigrateOptions,
): Promise<string[]> {
  await checkWritable(client)
  await client.query(NO_TIME_LIMITS)
  await checkOwner(client, APPLIED_TABLE)
  await checkMayCreate(client, APPLIED_TABLE)
  if (grants !== undefined) await checkRoles(client, grants.roles)
  await lockMigrations(statementRunner(client), notice)
  return planMigrations(statementRunner(client), direction, count)
}

/** @throws {DatabaseUnavailableError} if the server is read-only */
async function checkWritable(client: pg.Client): Promise<void> {
  const { isReadOnly, isStandby } = await askServer(client, SERVER_TIMEOUT_MS)
  if (isReadOnly) throw new DatabaseUnavailableError(new ReadOnlyServerError(isStandby))
}

/** The outcome of a run of node-pg-migrate. */
interface Run {
  /** The last migration that was started. */
  readonly last: { readonly migration: MigrationFile; readonly part: MigrationPart } | undefined
  /** Undefined if the run succeeded. */
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
  try {
    await runMigrationFiles(client, { direction, count }, onStart)
    return { last, error: undefined }
  } catch (error) {
    return { last, error }
  }
}

/**
 * Returns the error to throw for a failed run, depending on what it has changed in the database.
 *
 * @param lost the error with which the connection was lost, if it was
 */
async function failureOf(
  client: pg.Client,
  { last, error }: Run,
  done: readonly string[],
  direction: 'up' | 'down',
  lost: Error | undefined,
): Promise<unknown> {
  // node-pg-migrate replaces the error that broke the connection by that of its ROLLBACK, which was never sent.
  const outage = lost && new DatabaseUnavailableError(error instanceof pg.DatabaseError ? error : lost)
  if (last === undefined) return outage ?? error
  const { migration, part } = last
  if (part.isTransactional && done.length === 0) {
    if (outage !== undefined) return outage
    if (isForbidden(error)) return error
  }
  return new MigrationFailedError({
    migration: migration.name,
    direction,
    reason: lost === undefined ? reasonOf(error, last) : 'the connection to PostgreSQL was lost',
    holders: isLocked(error) ? await lockHolders(client, part.isTransactional) : [],
    isTransactional: part.isTransactional,
    done,
    invalidIndexes: await invalidIndexesOf(statementRunner(client), migration),
  })
}

/** Returns PostgreSQL's error message, with the line of the migration file if known; undefined for a lock timeout. */
function reasonOf(error: unknown, { migration, part }: NonNullable<Run['last']>): string | undefined {
  if (isLocked(error)) return undefined
  if (!(error instanceof pg.DatabaseError)) return error instanceof Error ? error.message : String(error)
  const reason = messageWithDetail(error)
  const [statement = '', ...others] = part.statements
  const offset = Number(error.position) - 1
  if (others.length > 0 || !(offset < statement.length)) return reason
  const line = part.line + statement.slice(0, offset).split('\n').length - 1
  return `${reason}, in line ${line} of migrations/${migration.name}.sql`
}

function newClient(url: string): pg.Client {
  return operatorClient(url, {
    application_name: 'petstore-inventory migrate',
    lock_timeout: LOCK_TIMEOUT_MS,
  })
}

/**
 * Connects again, and waits until the lost session has ended on the server, so that its outcome is decided. The session has
 * ended when the migration lock, which it held, is free.
 *
 * @throws {OutcomeUnknownError} if the server cannot be reached, or the lost session does not end, in time
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
 * Describes the sessions that hold locks on tables of this schema. For a migration outside a transaction, also those with a
 * snapshot, because `CREATE INDEX CONCURRENTLY` waits for all of them (PostgreSQL manual, CREATE INDEX).
 */
async function lockHolders(client: pg.Client, isTransactional: boolean): Promise<string[]> {
  const { rows } = await client.query<{ holder: string }>(
    `WITH holders (pid, what) AS (
       SELECT pid, mode || ' on ' || relation::regclass FROM pg_locks
       WHERE locktype = 'relation' AND granted AND database = (
           SELECT oid FROM pg_database WHERE datname = current_database()
         ) AND relation IN (
           SELECT oid FROM pg_class
           WHERE relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass($2)) AND relkind IN ('r', 'p')
         )
       UNION
       -- The types and times of other roles' sessions are visible to members of pg_read_all_stats only.
       SELECT pid, 'a snapshot' FROM pg_stat_activity
       WHERE $1 AND datname = current_database() AND backend_xmin IS NOT NULL
         AND coalesce(backend_type, 'client backend') = 'client backend'
     )
     SELECT format('PID %s (%s%s, %s%s: %s)', pid, usename,
              CASE WHEN application_name = '' THEN '' ELSE ', ' || application_name END, string_agg(what, ', ' ORDER BY what COLLATE "C"),
              ', for ' || extract(epoch FROM now() - coalesce(xact_start, query_start))::integer || ' s',
              left(regexp_replace(query, '[[:space:]]+', ' ', 'g'), 60)) AS holder
     FROM holders JOIN pg_stat_activity USING (pid)
     WHERE pid <> pg_backend_pid()
     GROUP BY pid, usename, application_name, xact_start, query_start, query
     ORDER BY pid`,
    [!isTransactional, APPLIED_TABLE],
  )
  return rows.map(({ holder }) => holder)
}
