import type pg from 'pg'
import { DatabaseUnavailableError, ReadOnlyServerError } from '../errors.ts'
import { IS_READ_ONLY } from '../server-status.ts'
import { inTransaction, type Transaction } from '../transaction.ts'
import { APPLIED_TABLE } from './applied.ts'
import { recordChecksums } from './history.ts'
import { lockMigrations } from './lock.ts'
import { checkOrder, type MigrationSteps } from './plan.ts'
import { checkMayCreate, checkOwner, checkRoles, type Grants, grantPrivileges } from './privileges.ts'
import { runMigrations, sqlOfMigrations } from './runner.ts'

/** How long PostgreSQL may take to say whether it accepts writes. */
const FIRST_ANSWER_TIMEOUT_MS = 5000

/** A connection pooler refuses this parameter, so that its user learns to set the address of PostgreSQL itself. */
const LOCK_TIMEOUT_MS = 30_000

export interface MigrateOptions extends MigrationSteps {
  /** A `postgres://` address of the server itself, not of a connection pooler. */
  readonly url: string
  /** Roles that get privileges on the tables after the migrations. */
  readonly grants?: Grants
  /** Rolls everything back, and makes the promise reject with the signal's reason. */
  readonly signal?: AbortSignal
  /** Called before COMMIT is sent. From then on the signal has no effect. */
  readonly onCommit?: () => void
  /** Called with a line before a wait that may take long. */
  readonly notice?: (line: string) => void
}

/**
 * Applies or rolls back migrations, then grants privileges to the roles, all in one transaction. Returns the names of the
 * migrations that it ran. Processes that migrate the same database wait for each other, so that the first one does the work.
 *
 * @throws {MigrationError} if a migration or a grant cannot run or has failed; nothing has changed
 * @throws what `inTransaction` throws
 */
export function migrate(options: MigrateOptions): Promise<string[]> {
  return inMigration(options, async (transaction, client) => {
    const ran = await runMigrations(client, options)
    await recordChecksums(transaction)
    if (options.grants !== undefined) await grantPrivileges(transaction, options.grants)
    return ran
  })
}

/** Returns the SQL with which `migrate` would run the migrations now, and changes nothing. Throws what `migrate` throws. */
export function migrationSql(options: MigrateOptions): Promise<string> {
  return inMigration(options, async (_transaction, client) => {
    // Even in a dry run, node-pg-migrate creates the table of applied migrations.
    await client.query('SAVEPOINT dry_run')
    const sql = await sqlOfMigrations(client, options)
    await client.query('ROLLBACK TO SAVEPOINT dry_run')
    if (sql !== '') return `BEGIN;\n${sql}\nCOMMIT;`
    return `-- No migration is ${options.direction === 'up' ? 'pending' : 'applied'}.`
  })
}

/** Runs `work` in a transaction in which migrations can run. */
function inMigration<Result>(
  { url, direction, count, grants, notice = () => {}, ...options }: MigrateOptions,
  work: (transaction: Transaction, client: pg.Client) => Promise<Result>,
): Promise<Result> {
  const { signal = new AbortController().signal, onCommit = () => {} } = options
  const session = { application_name: 'petstore-inventory migrate', lock_timeout: LOCK_TIMEOUT_MS }
  return inTransaction({ url, readOnly: false, signal, onCommit, session }, async (transaction, client) => {
    await checkWritable(client)
    await checkOwner(transaction, APPLIED_TABLE)
    await checkMayCreate(transaction, APPLIED_TABLE)
    if (grants !== undefined) await checkRoles(transaction, grants.roles)
    await lockMigrations(transaction, notice)
    await checkOrder(transaction, { direction, count })
    return work(transaction, client)
  })
}

/** @throws {DatabaseUnavailableError} if the server is read-only */
async function checkWritable(client: pg.Client): Promise<void> {
  const query = {
    text: `SELECT pg_is_in_recovery() AS "isStandby", ${IS_READ_ONLY} AS "isReadOnly"`,
    query_timeout: FIRST_ANSWER_TIMEOUT_MS,
  }
  const { rows } = await client.query<{ isStandby: boolean; isReadOnly: boolean }>(query)
  const [server] = rows
  if (server?.isReadOnly) throw new DatabaseUnavailableError(new ReadOnlyServerError(server.isStandby))
}
