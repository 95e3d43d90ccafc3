import type { RunnerOption } from 'node-pg-migrate'
import type pg from 'pg'
import { appliedMigrations } from './applied-migrations.ts'
import { explained, placeOfTables } from './grants.ts'
import { MigrationError } from './migration-error.ts'
import { MIGRATIONS_FOLDER, migrationLoader, readScript } from './migration-files.ts'
import { APPLIED_TABLE } from './migrations.ts'
import { type ConnectionOptions, onConnection, transactionOf } from './transaction.ts'

export interface MigrateOptions extends ConnectionOptions {
  readonly direction: 'up' | 'down'
  /** Maximum number of migrations. By default, all pending ones are applied, or one is rolled back. */
  readonly count?: number | undefined
}

/** A run waits for others before node-pg-migrate begins its transaction, so without a limit for the session. */
const SETTINGS = { TimeZone: 'UTC', lock_timeout: '0' }

/**
 * Applies or rolls back migrations in one transaction, and returns their names. Processes that migrate the same database wait for
 * each other, so that the first one does the work.
 *
 * @throws {MigrationError} if a migration cannot run or has failed
 * @throws what `onConnection` throws
 */
export function migrate(options: MigrateOptions): Promise<string[]> {
  return onConnection({ ...options, settings: SETTINGS }, (client) => run(client, options))
}

/** Returns the SQL with which `migrate` would run the migrations now, and changes nothing. Throws what `migrate` throws. */
export async function migrationSql(options: MigrateOptions): Promise<string> {
  const sql: string[] = []
  const logger = { debug: (text: string) => sql.push(text.trim()), info: ignore, warn: ignore, error: ignore }
  const dryRun = { dryRun: true, noLock: true, singleTransaction: false, verbose: true, logger }
  await onConnection(options, async (client) => {
    // It is not committed: node-pg-migrate creates its table in a dry run, too.
    await client.query('BEGIN')
    await run(client, options, dryRun)
  })
  if (sql.length === 0) return `-- No migration is ${options.direction === 'up' ? 'pending' : 'applied'}.`
  return ['BEGIN;', "SET LOCAL TIME ZONE 'UTC';", ...sql, 'COMMIT;'].join('\n')
}

const ignore = (): void => {}

async function run(
  client: pg.Client,
  { direction, count = direction === 'up' ? Number.POSITIVE_INFINITY : 1 }: MigrateOptions,
  options: Partial<RunnerOption> = {},
): Promise<string[]> {
  const { runner } = await import('node-pg-migrate')
  const database = transactionOf(client)
  const { schema } = await placeOfTables(database)
  if ((await appliedMigrations(database)).length > 0) await client.query(await readScript('order.sql'))
  let what = 'The migrations cannot run'
  const loader = migrationLoader((name, builder) => {
    what = `The migration ${name} failed`
    // Otherwise, a dry run would print a transaction for each migration.
    if (options.dryRun) builder.noTransaction()
  })
  /** The first error of PostgreSQL or of the connection, which node-pg-migrate may replace with one of its own. */
  let failure: unknown
  const keep = (error: unknown): unknown => (failure ??= error)
  client.on('error', keep).connection.on('errorMessage', keep)
  try {
    const ran = await runner({
      dbClient: client,
      dir: MIGRATIONS_FOLDER,
      ignorePattern: '(?!\\d+_).*',
      migrationLoaderStrategies: [loader],
      migrationsTable: APPLIED_TABLE,
      migrationsSchema: schema,
      direction,
      count,
      singleTransaction: true,
      advisoryLockMode: 'wait',
      log: ignore,
      ...options,
    })
    return ran.map(({ name }) => name)
  } catch (error) {
    if (failure !== undefined) throw explained(what, failure, 'nothing was changed')
    throw new MigrationError(`${String(error).replace(/^Error: |\.$/g, '')}; nothing was changed.`)
  }
}
