import { runner } from 'node-pg-migrate'
import pg from 'pg'
import { MigrationOrderError, UnknownMigrationError } from './migration-errors.ts'
import { knownMigrations, MIGRATIONS_FOLDER, migrationLoader, readMigration } from './migration-files.ts'
import { APPLIED_TABLE, migrationHistory, newestApplied } from './migration-history.ts'
import type { Database, StatementRunner } from './pool.ts'
import { checkMayCreate } from './privileges.ts'
import { hasTable } from './server-status.ts'

/**
 * The names of the migrations that a run would apply or roll back now, in the order in which it would. `count` is how
 * many at most; by default all that are pending for `up`, one for `down`.
 *
 * @throws {MigrationOrderError} where one is pending that is older than one that was applied
 * @throws {UnknownMigrationError} where one is to be rolled back that a newer version has applied
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
 * The SQL that `migrate` would run now, without running any of it.
 *
 * @throws as `planMigrations` does
 */
export async function migrationSql(
  url: string,
  direction: 'up' | 'down',
  count: number | undefined,
): Promise<string> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 10_000 })
  client.on('error', () => {})
  const steps: string[] = []
  try {
    await client.connect()
    await checkMayCreate(client, APPLIED_TABLE)
    await planMigrations(statementRunner(client), direction, count)
    // The runner makes the table of the migrations, which must not stay.
    await client.query('BEGIN')
    await runner({
      dbClient: client,
      dir: MIGRATIONS_FOLDER,
      migrationLoaderStrategies: [migrationLoader(() => {})],
      direction,
      migrationsTable: APPLIED_TABLE,
      singleTransaction: false,
      noLock: true,
      dryRun: true,
      verbose: true,
      logger: { debug: (text) => steps.push(text), info: () => {}, warn: () => {}, error: () => {} },
      ...(count === undefined ? {} : { count }),
    })
    await client.query('ROLLBACK')
  } finally {
    await client.end()
  }
  return steps.length === 0 ? '-- No migration is pending.' : joinTransactions(steps)
}

/** Puts neighbouring steps, each with a transaction of its own, into one transaction, as `migrate` runs them. */
function joinTransactions(steps: readonly string[]): string {
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

/** What rolling back migrations takes with it. */
export interface Rollback {
  /** The migrations, the newest first. */
  readonly names: readonly string[]
  /** Tables with the number of their rows, and columns, that the migrations drop. */
  readonly losses: readonly string[]
}

/**
 * Says which migrations `migrate` would roll back now, and what they drop.
 *
 * @throws {UnknownMigrationError} where one of them is not this version's
 */
export async function planRollback(database: Database, count: number): Promise<Rollback> {
  const names = await planMigrations(database, 'down', count)
  const losses: string[] = []
  for (const name of names) {
    const down = (await readMigration(name)).down.statements.join('\n')
    for (const [, table = ''] of down.matchAll(/\bDROP TABLE (?:IF EXISTS )?(\w+)/gi)) {
      if (!(await hasTable(database, table))) continue
      const [found] = await database.query<{ count: bigint }>(`SELECT count(*) FROM ${table}`)
      losses.push(`the table ${table} with ${found?.count.toLocaleString('en-US')} rows`)
    }
    for (const [, table = '', column = ''] of down.matchAll(
      /\bALTER TABLE (\w+)[^;]*?\bDROP COLUMN (?:IF EXISTS )?(\w+)/gi,
    )) {
      losses.push(`the column ${column} of ${table}`)
    }
  }
  return { names, losses }
}

export function statementRunner(client: pg.Client): StatementRunner {
  return {
    async query<Row extends pg.QueryResultRow>(text: string, values: readonly unknown[] = []) {
      return (await client.query<Row>(text, [...values])).rows
    },
  }
}
