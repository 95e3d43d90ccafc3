import type { Database, StatementRunner } from '../database.ts'
import { connect, operatorClient, reportOutage, statementRunner } from '../operator/operator-client.ts'
import { onlyRow } from '../protocol/only-row.ts'
import { hasTable } from '../server/server-status.ts'
import { APPLIED_TABLE, newestApplied } from './applied.ts'
import { MigrationOrderError, UnknownMigrationError } from './errors.ts'
import { knownMigrations, readMigration } from './files.ts'
import { migrationHistory } from './history.ts'
import { checkMayCreate } from './privileges.ts'
import { sqlOfMigrationFiles } from './runner.ts'

/**
 * Returns the names of the migrations that `migrate` would run now, in that order.
 *
 * @param count maximum number of migrations. By default, all pending ones are applied, or one is rolled back.
 * @throws {MigrationOrderError} if a pending migration is older than an applied one
 * @throws {UnknownMigrationError} if a migration to roll back was applied by another version
 */
export async function planMigrations(
  database: StatementRunner,
  direction: 'up' | 'down',
  count: number | undefined,
): Promise<string[]> {
  if (direction === 'up') {
    const history = await migrationHistory(database)
    const late = history.find(({ state }) => state === 'out of order')
    if (late !== undefined) throw new MigrationOrderError(late.name)
    return history
      .filter(({ appliedAt }) => appliedAt === null)
      .map(({ name }) => name)
      .slice(0, count)
  }
  const names = await newestApplied(database, count ?? 1)
  const known = await knownMigrations()
  const unknown = names.find((name) => !known.includes(name))
  if (unknown !== undefined) throw new UnknownMigrationError(unknown)
  return names
}

/**
 * Returns the SQL that `migrate` would run now, and changes nothing.
 *
 * @throws {DatabaseUnavailableError} if the server cannot be reached or cannot serve
 * @throws what `planMigrations` throws
 */
export async function migrationSql(
  url: string,
  direction: 'up' | 'down',
  count: number | undefined,
): Promise<string> {
  const client = operatorClient(url)
  try {
    await connect(client)
    const steps = await reportOutage(client, async () => {
      await checkMayCreate(client, APPLIED_TABLE)
      await planMigrations(statementRunner(client), direction, count)
      // Even in a dry run, the runner creates the table of applied migrations. The rollback removes it.
      await client.query('BEGIN')
      const sql = await sqlOfMigrationFiles(client, { direction, count })
      await client.query('ROLLBACK')
      return sql
    })
    if (steps.length > 0) return mergeTransactions(steps)
    return `-- No migration is ${direction === 'up' ? 'pending' : 'applied'}.`
  } finally {
    await client.end()
  }
}

/** Merges consecutive steps with a transaction each into one transaction, because that is how `migrate` runs them. */
function mergeTransactions(steps: readonly string[]): string {
  const lines: string[] = []
  let isOpen = false
  const setOpen = (open: boolean): void => {
    if (open !== isOpen) lines.push(open ? 'BEGIN;' : 'COMMIT;')
    isOpen = open
  }
  for (const step of steps) {
    const text = step.trim()
    const [, inner] = /^BEGIN;\n([\s\S]*)\nCOMMIT;$/.exec(text) ?? []
    setOpen(inner !== undefined)
    lines.push(inner ?? text)
  }
  setOpen(false)
  return lines.join('\n')
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
 * @throws {UnknownMigrationError} if one of them was applied by another version
 */
export async function planRollback(database: Database, count: number): Promise<Rollback> {
  const names = await planMigrations(database, 'down', count)
  const losses: string[] = []
  for (const name of names) {
    const down = (await readMigration(name)).down.statements.join('\n')
    for (const [, table = ''] of down.matchAll(/\bDROP TABLE (?:IF EXISTS )?(\w+)/gi)) {
      if (!(await hasTable(database, table))) continue
      const found = onlyRow(await database.query<{ count: bigint }>(`SELECT count(*) FROM ${table}`))
      const rows = found.count === 1n ? 'row' : 'rows'
      losses.push(`the table ${table} with ${found.count.toLocaleString('en-US')} ${rows}`)
    }
    for (const [, table = '', column = ''] of down.matchAll(
      /\bALTER TABLE (\w+)[^;]*?\bDROP COLUMN (?:IF EXISTS )?(\w+)/gi,
    )) {
      losses.push(`the column ${column} of ${table}`)
    }
  }
  return { names, losses }
}
