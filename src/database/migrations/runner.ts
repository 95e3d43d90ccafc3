import path from 'node:path'
import type { MigrationBuilder, RunnerOption } from 'node-pg-migrate'
import pg from 'pg'
import { hasCause, isFatal, messageWithDetail } from '../error-meaning.ts'
import { APPLIED_TABLE } from './applied.ts'
import { MigrationError } from './errors.ts'
import { MIGRATIONS_FOLDER, type MigrationFile, readMigration } from './files.ts'
import type { MigrationSteps } from './plan.ts'

/**
 * Applies or rolls back migrations with node-pg-migrate, in the transaction of the client, which must hold the lock of the
 * migrations. Returns their names. If one fails, the transaction is rolled back.
 *
 * @throws {MigrationError} if a migration failed or did not get a lock in time
 */
export async function runMigrations(client: pg.Client, steps: MigrationSteps): Promise<string[]> {
  let last: MigrationFile | undefined
  try {
    return await run(client, steps, { logger: silentLogger }, (migration) => {
      last = migration
    })
  } catch (error) {
    if (last === undefined || hasCause(error, 'forbidden') || isFatal(error)) throw error
    await client.query('ROLLBACK')
    throw new MigrationError(
      `The migration ${last.name} failed${await reasonOf(client, error, last, steps.direction)}`,
      { cause: error },
    )
  }
}

/** Returns the SQL that `runMigrations` would run. May create the table of applied migrations. */
export async function sqlOfMigrations(client: pg.Client, steps: MigrationSteps): Promise<string> {
  const sql: string[] = []
  const logger = { ...silentLogger, debug: (text: string) => sql.push(text.trim()) }
  await run(client, steps, { dryRun: true, verbose: true, logger })
  return sql.join('\n')
}

const silent = (): void => {}
const silentLogger = { debug: silent, info: silent, warn: silent, error: silent }

async function run(
  dbClient: pg.Client,
  { direction, count }: MigrationSteps,
  options: Pick<RunnerOption, 'dryRun' | 'verbose' | 'logger'>,
  onStart: (migration: MigrationFile) => void = silent,
): Promise<string[]> {
  const { runner } = await import('node-pg-migrate')
  const ran = await runner({
    dbClient,
    dir: MIGRATIONS_FOLDER,
    direction,
    ...(count === undefined ? {} : { count }),
    migrationsTable: APPLIED_TABLE,
    migrationsSchema: await schemaOfMigrations(dbClient),
    migrationLoaderStrategies: [migrationLoader(onStart)],
    // The caller has begun the transaction and commits it.
    singleTransaction: false,
    noLock: true,
    // This check goes by local times, which a change of the time zone reorders. `checkOrder` goes by name.
    checkOrder: false,
    ...options,
  })
  return ran.map(({ name }) => name)
}

/** Returns the schema of the applied migrations, or that of the tables to create. The default of node-pg-migrate is `public`. */
async function schemaOfMigrations(client: pg.Client): Promise<string> {
  const { rows } = await client.query<{ schema: string | null }>(
    `SELECT coalesce(
       (SELECT nspname FROM pg_class JOIN pg_namespace AS schema ON schema.oid = relnamespace WHERE pg_class.oid = to_regclass($1)),
       current_schema()
     )::text AS schema`,
    [APPLIED_TABLE],
  )
  return rows[0]?.schema ?? 'public'
}

/** Returns a loader with which node-pg-migrate reads the files like `readMigration`, and runs them in the open transaction. */
function migrationLoader(
  onStart: (migration: MigrationFile) => void,
): NonNullable<RunnerOption['migrationLoaderStrategies']>[number] {
  const load = async (file: string) => {
    const migration = await readMigration(path.basename(file, '.sql'))
    const action = (direction: MigrationSteps['direction']) => (pgm: MigrationBuilder) => {
      onStart(migration)
      pgm.noTransaction()
      pgm.sql(migration[direction].sql)
    }
    return { id: file, filePaths: [file], actions: { up: action('up'), down: action('down') } }
  }
  return { extensions: ['.sql'], loader: (files) => Promise.all(files.map(load)) }
}

/** Completes the sentence "The migration … failed": why, that nothing was changed, and what to do. */
async function reasonOf(
  client: pg.Client,
  error: unknown,
  migration: MigrationFile,
  direction: MigrationSteps['direction'],
): Promise<string> {
  if (hasCause(error, 'locked')) {
    const holders = await lockHolders(client)
    const advice =
      holders.length === 0
        ? 'The lock is free now. Run it again.'
        : `The lock is held by ${holders.join('; ')}. Run it again when that has ended, or terminate it: SELECT pg_terminate_backend(PID).`
    return ` to get a lock in time; nothing was changed. ${advice}`
  }
  if (!(error instanceof pg.DatabaseError))
    return `: ${error instanceof Error ? error.message : error}; nothing was changed.`
  const { sql, line } = migration[direction]
  const offset = Number(error.position) - 1
  const lines = sql.slice(0, offset).split('\n').length
  const place = offset < sql.length ? `, in line ${line + lines - 1} of migrations/${migration.name}.sql` : ''
  return `: ${messageWithDetail(error)}${place}; nothing was changed.`
}

/** Describes the sessions that hold locks on tables of this schema. */
async function lockHolders(client: pg.Client): Promise<string[]> {
  const { rows } = await client.query<{ holder: string }>(
    `SELECT format('PID %s (%s%s, %s%s: %s)', pid, usename,
              CASE WHEN application_name = '' THEN '' ELSE ', ' || application_name END,
              string_agg(DISTINCT mode || ' on ' || relation::regclass, ', '),
              ', for ' || extract(epoch FROM now() - coalesce(xact_start, query_start))::integer || ' s',
              left(regexp_replace(query, '[[:space:]]+', ' ', 'g'), 60)) AS holder
     FROM pg_locks JOIN pg_stat_activity USING (pid)
     WHERE locktype = 'relation' AND granted AND pid <> pg_backend_pid()
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND relation IN (
         SELECT oid FROM pg_class
         WHERE relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass($1)) AND relkind IN ('r', 'p')
       )
     GROUP BY pid, usename, application_name, xact_start, query_start, query
     ORDER BY pid`,
    [APPLIED_TABLE],
  )
  return rows.map(({ holder }) => holder)
}
