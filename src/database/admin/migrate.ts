import { readFile } from 'node:fs/promises'
import path from 'node:path'
import type { MigrationBuilder } from 'node-pg-migrate'
import { APPLIED_TABLE, appliedMigrations, MIGRATIONS_FOLDER } from '../migrations.ts'
import { OperatorError, toMessage } from '../operator-error.ts'
import type { StatementRunner } from '../statement.ts'
import { explained, findPlaceOfTables } from './grants.ts'
import { inTransaction, type TransactionOptions } from './transaction.ts'

/** node-pg-migrate records the times without a time zone. */
const SETTINGS = { TimeZone: 'UTC' }

export interface MigrateOptions extends TransactionOptions {
  readonly direction: 'up' | 'down'
  /** How many migrations to roll back, by default one. All pending ones are applied. */
  readonly count?: number | undefined
}

/**
 * Applies or rolls back migrations in one transaction, and returns their names. Processes wait for each other.
 *
 * @throws {OperatorError} if a migration cannot run or has failed
 * @throws what `inTransaction` throws
 */
export async function migrate(options: MigrateOptions): Promise<string[]> {
  const { direction, count = 1 } = options
  const { PG_MIGRATE_LOCK_ID, runner } = await import('node-pg-migrate')
  let what = 'The migrations cannot run'
  const migrated = inTransaction({ ...options, settings: SETTINGS }, async (transaction, client) => {
    await transaction.takeAdvisoryLock(PG_MIGRATE_LOCK_ID)
    const { schema } = await findPlaceOfTables(transaction)
    const applied = await appliedMigrations(transaction)
    if (direction === 'up' && applied.length > 0) await refuseOldSchema(transaction, applied)
    const loader = migrationLoader((name) => (what = `The migration ${name} failed`))
    /** The first error of PostgreSQL or the connection, which node-pg-migrate may replace with its own. */
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
        count: direction === 'up' ? Number.POSITIVE_INFINITY : count,
        noLock: true,
        singleTransaction: false,
        log: () => {},
      })
      return ran.map(({ name }) => name)
    } catch (error) {
      if (failure !== undefined) throw failure
      throw new OperatorError(`${toMessage(error).replace(/\.$/, '')}; nothing was changed.`)
    }
  })
  return migrated.catch((error: unknown) => {
    throw explained(what, error, 'nothing was changed')
  })
}

/** The newest migration of version 3.0.0. */
const NEWEST_OF_3 = '20261126000000000_fix-history'

/** Version 2.0.0 stored checksums; 1.0.0 applied two migrations. A schema without the newest one may also be rolled back. */
const IS_OLD_SCHEMA = `SELECT FROM pgmigrations WHERE to_jsonb(pgmigrations) ->> 'checksum' IS NOT NULL
  OR pg_sequence_last_value(pg_get_serial_sequence('pgmigrations', 'id')) = 2`

/** Throws an OperatorError if a version before 3.0.0 made the schema: only 4.0.0 can repair what it recorded. */
async function refuseOldSchema(database: StatementRunner, applied: readonly string[]): Promise<void> {
  if (applied.includes(NEWEST_OF_3) || (await database.query(IS_OLD_SCHEMA)).length === 0) return
  throw new OperatorError(
    'A version before 3.0.0 made this schema: upgrade to 4.0.0 first, and then to this version; nothing was changed.',
  )
}

/** Returns a loader of files with an up and a down part, in this order, that calls `onRun` when one of them runs. */
function migrationLoader(onRun: (name: string) => void) {
  const load = async (file: string) => {
    const text = `\n${await readFile(file, 'utf8')}`
    const [head = '', up = head, down = ''] = text.split(/^(?=-- (?:Up|Down) Migration)/im)
    const action = (sql: string) => (builder: MigrationBuilder) => {
      onRun(path.basename(file, '.sql'))
      builder.noTransaction()
      builder.sql(sql)
    }
    return { id: file, filePaths: [file], actions: { up: action(up), down: action(down) } }
  }
  return { extensions: ['.sql'], loader: (files: string[]) => Promise.all(files.map(load)) }
}
