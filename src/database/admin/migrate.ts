import { readFile } from 'node:fs/promises'
import path from 'node:path'
import type { MigrationBuilder } from 'node-pg-migrate'
import { OperatorError } from '../operator-error.ts'
import { explained, placeOfTables } from './grants.ts'
import { APPLIED_TABLE, appliedMigrations, MIGRATIONS_FOLDER } from './migrations.ts'
import { inTransaction, type TransactionOptions } from './transaction.ts'

/** node-pg-migrate records the times without a time zone. */
const SETTINGS = { TimeZone: 'UTC' }

export interface MigrateOptions extends TransactionOptions {
  readonly direction: 'up' | 'down'
  /** Maximum number of migrations; by default, all pending ones up, and one down. */
  readonly count?: number | undefined
}

/**
 * Applies or rolls back migrations in one transaction, and returns their names. Processes wait for each other.
 *
 * @throws {OperatorError} if a migration cannot run or has failed
 * @throws what `inTransaction` throws
 */
export async function migrate(options: MigrateOptions): Promise<string[]> {
  const { direction, count = direction === 'up' ? Number.POSITIVE_INFINITY : 1 } = options
  const { PG_MIGRATE_LOCK_ID, runner } = await import('node-pg-migrate')
  let what = 'The migrations cannot run'
  const migrated = inTransaction({ ...options, settings: SETTINGS }, async (transaction, client) => {
    await transaction.takeAdvisoryLock(PG_MIGRATE_LOCK_ID)
    const { schema } = await placeOfTables(transaction)
    if ((await appliedMigrations(transaction)).length > 0)
      await client.query(await readFile(path.join(MIGRATIONS_FOLDER, 'order.sql'), 'utf8'))
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
        count,
        noLock: true,
        singleTransaction: false,
        log: () => {},
      })
      return ran.map(({ name }) => name)
    } catch (error) {
      if (failure !== undefined) throw failure
      const said = String(error).replace(/^Error: |\.$/g, '')
      throw new OperatorError(`${said}; nothing was changed.${adviceOn(said)}`)
    }
  })
  return migrated.catch((error: unknown) => {
    throw explained(what, error, 'nothing was changed')
  })
}

/** Returns what to do about an error of node-pg-migrate, after a space. */
function adviceOn(said: string): string {
  const [, pending, own] =
    /^Not run migration (\S+) is preceding already run migration (\S+)$/.exec(said) ?? []
  if (pending !== undefined)
    return ` Migrations run in the order of their names: rename ${own}, its file and its row in the table pgmigrations, to a name before ${pending}.`
  return / have been deleted$/.test(said) ? ' Run the version that has their files.' : ''
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

/** Creates a migration from a template, with the current time (UTC) in its file name, and returns its path. */
export async function createMigration(name: string, folder: string): Promise<string> {
  const { Migration } = await import('node-pg-migrate')
  const templateFileName = path.join(MIGRATIONS_FOLDER, '.template.sql')
  return Migration.create(name, folder, { filenameFormat: 'utc', templateFileName })
}
