import { OperatorError } from '../operator-error.ts'
import type { StatementRunner } from '../statement.ts'
import { knownMigrations } from './migration-files.ts'
import { migrationRecords } from './migrations.ts'

/** Returns the names of the applied migrations, oldest first. Refuses the table of another program with an OperatorError. */
export async function appliedMigrations(database: StatementRunner): Promise<string[]> {
  const records = await migrationRecords(database, await knownMigrations())
  const applied = records.filter(({ state }) => state !== 'pending')
  const [first] = applied
  // A newer version has all migrations of this one.
  if (first?.state === 'unknown')
    throw new OperatorError(
      `The table pgmigrations belongs to another program: it lists the migration ${first.name}; nothing was changed. Give the inventory a database of its own, or a schema that is alone in the search_path of its roles.`,
    )
  return applied.map(({ name }) => name)
}
