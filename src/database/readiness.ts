import { DatabaseUnavailableError } from './failures.ts'
import { pendingMigrations } from './migrations.ts'
import type { Database } from './pool.ts'

/**
 * Why the database cannot serve this version now, in words for an operator; undefined when it can. `migrations` are
 * the names of those that this version needs.
 */
export async function reasonNotReady(
  database: Database,
  migrations: readonly string[],
): Promise<string | undefined> {
  try {
    const pending = await pendingMigrations(database, migrations)
    if (pending.length === 0) return undefined
    return `The database schema is behind; to be applied: ${pending.join(', ')}. Run "inventory migrate up".`
  } catch (error) {
    if (error instanceof DatabaseUnavailableError) return 'The database cannot be reached.'
    throw error
  }
}
