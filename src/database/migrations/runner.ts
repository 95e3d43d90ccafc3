import path from 'node:path'
import type { MigrationBuilder, RunnerOption } from 'node-pg-migrate'
import type pg from 'pg'
import { APPLIED_TABLE } from './applied.ts'
import { MIGRATIONS_FOLDER, type MigrationFile, type MigrationPart, readMigration } from './files.ts'

/** Which migrations to run. */
export interface MigrationSteps {
  readonly direction: 'up' | 'down'
  /** Maximum number of migrations. By default, all pending ones are applied, or one is rolled back. */
  readonly count?: number | undefined
}

/**
 * Applies or rolls back migrations with node-pg-migrate, in one transaction except for those that run outside one. The session
 * must hold the lock of the migrations.
 *
 * @param onStart called when a migration starts
 */
export async function runMigrationFiles(
  client: pg.Client,
  steps: MigrationSteps,
  onStart: (migration: MigrationFile, part: MigrationPart) => void,
): Promise<void> {
  await run(client, steps, {
    migrationLoaderStrategies: [migrationLoader(onStart)],
    singleTransaction: true,
    logger: silentLogger,
  })
}

/** Returns the SQL of each migration that `runMigrationFiles` would run. May create the table of applied migrations. */
export async function sqlOfMigrationFiles(client: pg.Client, steps: MigrationSteps): Promise<string[]> {
  const sql: string[] = []
  await run(client, steps, {
    migrationLoaderStrategies: [migrationLoader(() => {})],
    singleTransaction: false,
    dryRun: true,
    verbose: true,
    logger: { ...silentLogger, debug: (text) => sql.push(text) },
  })
  return sql
}

const silent = (): void => {}
const silentLogger = { debug: silent, info: silent, warn: silent, error: silent }

async function run(
  dbClient: pg.Client,
  { direction, count }: MigrationSteps,
  options: Pick<
    RunnerOption,
    'migrationLoaderStrategies' | 'singleTransaction' | 'dryRun' | 'verbose' | 'logger'
  >,
): Promise<void> {
  const { runner } = await import('node-pg-migrate')
  await runner({
    dbClient,
    dir: MIGRATIONS_FOLDER,
    direction,
    ...(count === undefined ? {} : { count }),
    migrationsTable: APPLIED_TABLE,
    migrationsSchema: await schemaOfMigrations(dbClient),
    // `planMigrations` has checked the order by name. This check goes by local times, which a change of the time zone reorders;
    // for a rollback they decide what is the newest migration.
    checkOrder: direction === 'down',
    // This session already holds the lock.
    noLock: true,
    ...options,
  })
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

/**
 * Returns a loader with which node-pg-migrate reads the files like `readMigration`. Its own loader runs every SQL file in a
 * transaction.
 *
 * @param onStart called when a migration starts
 */
function migrationLoader(
  onStart: (migration: MigrationFile, part: MigrationPart) => void,
): NonNullable<RunnerOption['migrationLoaderStrategies']>[number] {
  const load = async (file: string) => {
    const migration = await readMigration(path.basename(file, '.sql'))
    const action = (part: MigrationPart) => (pgm: MigrationBuilder) => {
      onStart(migration, part)
      if (!part.isTransactional) pgm.noTransaction()
      for (const statement of part.statements) pgm.sql(statement)
    }
    return {
      id: file,
      filePaths: [file],
      actions: { up: action(migration.up), down: action(migration.down) },
    }
  }
  return { extensions: ['.sql'], loader: (files) => Promise.all(files.map(load)) }
}

/**
 * Creates a migration from a template, with the current time (UTC) in its file name, and returns its path. The template for a
 * migration outside a transaction builds an index without blocking writes.
 */
export async function createMigration(
  name: string,
  folder: string,
  isTransactional: boolean,
): Promise<string> {
  const { Migration } = await import('node-pg-migrate')
  const template = isTransactional ? '.template.sql' : '.template-no-transaction.sql'
  return Migration.create(name, folder, {
    filenameFormat: 'utc',
    templateFileName: path.join(MIGRATIONS_FOLDER, template),
  })
}
