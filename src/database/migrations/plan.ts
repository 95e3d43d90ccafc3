import type { Database, StatementRunner } from '../database.ts'
import { onlyRow } from '../protocol/only-row.ts'
import { hasTable } from '../server/server-status.ts'
import { appliedMigrations } from './applied.ts'
import { MigrationError } from './errors.ts'
import { knownMigrations, readMigration } from './files.ts'
import { migrationHistory } from './history.ts'

/** Which migrations to run. */
export interface MigrationSteps {
  readonly direction: 'up' | 'down'
  /** Maximum number of migrations. By default, all pending ones are applied, or one is rolled back. */
  readonly count?: number | undefined
}

/**
 * Checks that migrations can run in order.
 *
 * @throws {MigrationError} if a pending migration is older than an applied one, or if one to roll back was applied by another version
 */
export async function checkOrder(
  database: StatementRunner,
  { direction, count = 1 }: MigrationSteps,
): Promise<void> {
  if (direction === 'down') {
    await namesToRollBack(database, count)
    return
  }
  const late = (await migrationHistory(database)).find(({ state }) => state === 'out of order')
  if (late === undefined) return
  throw new MigrationError(
    `The migration ${late.name} is older than one that was applied, and would run out of order; nothing was changed. ` +
      'Give it a new name with "inventory migrate create", or restore the list of migrations that it is missing from.',
  )
}

async function namesToRollBack(database: StatementRunner, count: number): Promise<string[]> {
  // The newest first.
  const names = (await appliedMigrations(database)).reverse().slice(0, count)
  const known = await knownMigrations()
  const unknown = names.find((name) => !known.includes(name))
  if (unknown === undefined) return names
  throw new MigrationError(
    `This version does not know the migration ${unknown}. Roll it back with the version that brought it.`,
  )
}

/** A planned rollback and the data that it would delete. */
export interface Rollback {
  /** The migrations, newest first. */
  readonly names: readonly string[]
  /** Descriptions of the tables, with their number of rows, and the columns that would be dropped. */
  readonly losses: readonly string[]
}

/**
 * Finds out which migrations `migrate` would roll back now, and which tables and columns they would drop.
 *
 * @throws {MigrationError} if one of them was applied by another version
 */
export async function planRollback(database: Database, count: number): Promise<Rollback> {
  const names = await namesToRollBack(database, count)
  const losses: string[] = []
  for (const name of names) {
    const { sql } = (await readMigration(name)).down
    for (const [, table = ''] of sql.matchAll(/\bDROP TABLE (?:IF EXISTS )?(\w+)/gi)) {
      if (!(await hasTable(database, table))) continue
      const found = onlyRow(await database.query<{ count: bigint }>(`SELECT count(*) FROM ${table}`))
      const rows = found.count === 1n ? 'row' : 'rows'
      losses.push(`the table ${table} with ${found.count.toLocaleString('en-US')} ${rows}`)
    }
    for (const [, table = '', column = ''] of sql.matchAll(
      /\bALTER TABLE (\w+)[^;]*?\bDROP COLUMN (?:IF EXISTS )?(\w+)/gi,
    )) {
      losses.push(`the column ${column} of ${table}`)
    }
  }
  return { names, losses }
}
