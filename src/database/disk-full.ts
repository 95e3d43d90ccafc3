import type { Database } from './database.ts'
import { hasCause } from './error-meaning.ts'

/**
 * Returns whether PostgreSQL's disk has no room for a temporary file of about 2 MB. The role needs no privileges. Lowers `work_mem`
 * of the connection, so that PostgreSQL writes the file.
 */
export async function isDiskFull(database: Database): Promise<boolean> {
  try {
    await database.query("SET work_mem = '64kB'")
    await database.query('SELECT count(*) FROM generate_series(1, 100000)')
    return false
  } catch (error) {
    if (hasCause(error, 'diskFull')) return true
    throw error
  }
}
