import pg from 'pg'
import { hasCause, isFatal, messageWithDetail } from './error-meaning.ts'
import { grantPrivileges, placeOfTables, type Roles } from './grants.ts'
import { APPLIED_TABLE, MIGRATIONS_FOLDER, MigrationError } from './migrations.ts'
import { inTransaction, type Transaction, type TransactionOptions } from './transaction.ts'

export interface MigrateOptions extends Omit<TransactionOptions, 'readOnly'> {
  readonly direction: 'up' | 'down'
  /** Maximum number of migrations. By default, all pending ones are applied, or one is rolled back. */
  readonly count?: number | undefined
  /** Roles that get privileges on the tables after the migrations. */
  readonly roles?: Roles
}

/**
 * Applies or rolls back migrations, grants the roles their privileges, and returns the names of the migrations. All of it is one
 * transaction. Processes that migrate the same database wait for each other, so that the first one does the work.
 *
 * @throws {MigrationError} if a migration or a grant cannot run or has failed
 * @throws what `inTransaction` throws
 */
export function migrate(options: MigrateOptions): Promise<string[]> {
  return inTransaction({ ...options, readOnly: false }, async (transaction) => {
    const { names } = await runMigrations(transaction, options, false)
    await grantPrivileges(transaction, options.roles ?? {}).catch((error: unknown) => {
      throw explained('The privileges cannot be granted', error)
    })
    return names
  })
}

/** Returns the SQL with which `migrate` would run the migrations now, and changes nothing. Throws what `migrate` throws. */
export async function migrationSql(options: MigrateOptions): Promise<string> {
  const sql = await inTransaction({ ...options, readOnly: false }, async (transaction) => {
    const run = await runMigrations(transaction, options, true)
    // node-pg-migrate creates its table in a dry run, too.
    await transaction.query('ROLLBACK AND CHAIN')
    return run.sql
  })
  if (sql.length === 0) return `-- No migration is ${options.direction === 'up' ? 'pending' : 'applied'}.`
  return ['BEGIN;', "SET LOCAL TIME ZONE 'UTC';", ...sql, 'COMMIT;'].join('\n')
}

/** What node-pg-migrate sends around its migrations. The transaction is ours. */
const BOUNDARIES = ['BEGIN', 'COMMIT', 'ROLLBACK']

/** Runs node-pg-migrate in a transaction, and returns the names of the migrations and their SQL. A dry run only collects the SQL. */
async function runMigrations(
  transaction: Transaction,
  { direction, count }: MigrateOptions,
  dryRun: boolean,
): Promise<{ names: string[]; sql: string[] }> {
  const { PG_MIGRATE_LOCK_ID, runner } = await import('node-pg-migrate')
  // Its own lock would be released before COMMIT.
  await transaction.takeAdvisoryLock(PG_MIGRATE_LOCK_ID)
  await transaction.query("SET LOCAL TIME ZONE 'UTC'")
  const { schema } = await placeOfTables(transaction)
  /** node-pg-migrate hides it behind errors of its own. */
  let failure: unknown
  const query = async (text: string): Promise<{ rows: unknown[] }> => {
    if (BOUNDARIES.includes(text)) return { rows: [] }
    try {
      // Times do not order migrations: versions before 3.0.0 recorded them in the time zone of the session.
      return {
        rows: await transaction.query(text.replace('ORDER BY run_on, id', 'ORDER BY name COLLATE "C"')),
      }
    } catch (error) {
      failure ??= error
      throw error
    }
  }
  let running: string | undefined
  const sql: string[] = []
  const logger = {
    debug: (text: string) => sql.push(text.trim()),
    info: (line: string) => {
      running = /^### MIGRATION (\S+)/.exec(line)?.[1] ?? running
    },
    warn: () => {},
    error: () => {},
  }
  try {
    const ran = await runner({
      dbClient: Object.create(pg.Client.prototype, { query: { value: query } }),
      dir: MIGRATIONS_FOLDER,
      ignorePattern: '(?!\\d+_).*',
      direction,
      ...(count === undefined ? {} : { count }),
      migrationsTable: APPLIED_TABLE,
      migrationsSchema: schema,
      singleTransaction: true,
      noLock: true,
      dryRun,
      verbose: true,
      logger,
    })
    return { names: ran.map(({ name }) => name), sql }
  } catch (error) {
    const what = running === undefined ? 'The migrations cannot run' : `The migration ${running} failed`
    if (failure !== undefined) throw explained(what, failure)
    const said = String(error instanceof Error ? error.message : error).replace(/\.$/, '')
    throw new MigrationError(`${said}; nothing was changed.`)
  }
}

/** Returns a MigrationError if PostgreSQL has rejected a statement; any other error is returned unchanged. */
function explained(what: string, error: unknown): unknown {
  if (!(error instanceof pg.DatabaseError) || isFatal(error)) return error
  const advice = hasCause(error, 'forbidden') ? ' Run this as the owner of the tables.' : ''
  return new MigrationError(`${what}: ${messageWithDetail(error)}; nothing was changed.${advice}`)
}
