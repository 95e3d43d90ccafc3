import type { RunnerOption } from 'node-pg-migrate'
import type pg from 'pg'
import { OperatorError } from '../operator-error.ts'
import { appliedMigrations } from './applied-migrations.ts'
import { explained, placeOfTables } from './grants.ts'
import { MIGRATIONS_FOLDER, migrationLoader, readScript } from './migration-files.ts'
import { APPLIED_TABLE } from './migrations.ts'
import { inTransaction, type Transaction, type TransactionOptions } from './transaction.ts'

/** node-pg-migrate records the times without a time zone. */
const SETTINGS = { TimeZone: 'UTC' }

export interface MigrateOptions extends TransactionOptions {
  readonly direction: 'up' | 'down'
  /** Maximum number of migrations. By default, all pending ones are applied, or one is rolled back. */
  readonly count?: number | undefined
}

/**
 * Applies or rolls back migrations in one transaction, and returns their names. Processes that migrate the same database wait for
 * each other, so that the first one does the work.
 *
 * @throws {OperatorError} if a migration cannot run or has failed
 * @throws what `inTransaction` throws
 */
export function migrate(options: MigrateOptions): Promise<string[]> {
  return inTransaction({ ...options, settings: SETTINGS }, (transaction, client) =>
    run(transaction, client, options),
  )
}

/** Returns the SQL with which `migrate` would run the migrations now, and changes nothing. Throws what `migrate` throws. */
export async function migrationSql(options: MigrateOptions): Promise<string> {
  const sql: string[] = []
  const logger = { debug: (text: string) => sql.push(text.trim()), info: ignore, warn: ignore, error: ignore }
  await inTransaction({ ...options, settings: SETTINGS }, async (transaction, client) => {
    await run(transaction, client, options, { dryRun: true, verbose: true, logger })
    // node-pg-migrate creates its table in a dry run, too.
    await client.query('ROLLBACK AND CHAIN')
  })
  if (sql.length === 0) return `-- No migration is ${options.direction === 'up' ? 'pending' : 'applied'}.`
  return ['BEGIN;', "SET LOCAL TIME ZONE 'UTC';", ...sql, 'COMMIT;'].join('\n')
}

const ignore = (): void => {}

async function run(
  transaction: Transaction,
  client: pg.Client,
  { direction, count = direction === 'up' ? Number.POSITIVE_INFINITY : 1 }: MigrateOptions,
  options: Partial<RunnerOption> = {},
): Promise<string[]> {
  const { PG_MIGRATE_LOCK_ID, runner } = await import('node-pg-migrate')
  await transaction.takeAdvisoryLock(PG_MIGRATE_LOCK_ID)
  const { schema } = await placeOfTables(transaction)
  if ((await appliedMigrations(transaction)).length > 0) await client.query(await readScript('order.sql'))
  let what = 'The migrations cannot run'
  const loader = migrationLoader((name) => (what = `The migration ${name} failed`))
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
      noLock: true,
      singleTransaction: false,
      log: ignore,
      ...options,
    })
    return ran.map(({ name }) => name)
  } catch (error) {
    if (failure !== undefined) throw explained(what, failure, 'nothing was changed')
    throw new OperatorError(`${String(error).replace(/^Error: |\.$/g, '')}; nothing was changed.`)
  }
}
