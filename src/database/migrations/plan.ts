import type { StatementRunner } from '../database.ts'
import { appliedMigrations } from './applied.ts'
import { MigrationError } from './errors.ts'
import { knownMigrations } from './files.ts'
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

/**
 * Returns the migrations that `migrate` would roll back now, newest first.
 *
 * @throws {MigrationError} if one of them was applied by another version
 */
export async function namesToRollBack(database: StatementRunner, count: number): Promise<string[]> {
  const applied = await appliedMigrations(database)
  const names = applied
    .reverse()
    .slice(0, count)
    .map(({ name }) => name)
  const known = await knownMigrations()
  const unknown = names.find((name) => !known.includes(name))
  if (unknown === undefined) return names
  throw new MigrationError(
    `This version does not know the migration ${unknown}. Roll it back with the version that brought it.`,
  )
}
