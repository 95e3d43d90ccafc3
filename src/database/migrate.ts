import pg from 'pg'
import { hasCause, isFatal, messageWithDetail } from './error-meaning.ts'
import { DatabaseUnavailableError, ReadOnlyServerError } from './errors.ts'
import { grantPrivileges, type Roles } from './grants.ts'
import { APPLIED_TABLE, MIGRATIONS_FOLDER, MigrationError } from './migrations.ts'
import { onlyRow } from './only-row.ts'
import { IS_READ_ONLY } from './server-status.ts'
import { type ClientOptions, inTransaction, NO_TRANSACTION_TIMEOUT, withClient } from './transaction.ts'

/** How long PostgreSQL may take to say whether it accepts writes. */
const FIRST_ANSWER_TIMEOUT_MS = 5000

/**
 * How long to wait for other migrations of the same database. A connection pooler refuses this parameter, so that its user
 * learns to set the address of PostgreSQL itself.
 */
const LOCK_TIMEOUT_MS = 60_000

/**
 * Gives applied migrations whose times contradict their names times in the order of their names, because node-pg-migrate
 * goes by the times. Versions before 3.0.0 recorded them in the time zone of the session. A migration was applied no later than a
 * newer one.
 */
const ORDER_BY_NAME = `
  UPDATE ${APPLIED_TABLE} SET run_on = ordered.run_on
  FROM (
    SELECT id, min(run_on) OVER newer - row_number() OVER newer * interval '1 microsecond' AS run_on
    FROM ${APPLIED_TABLE} WINDOW newer AS (ORDER BY name COLLATE "C" DESC)
  ) AS ordered
  WHERE ordered.id = ${APPLIED_TABLE}.id AND (
    SELECT array_agg(name ORDER BY run_on, id) <> array_agg(name ORDER BY name COLLATE "C") FROM ${APPLIED_TABLE}
  )`

export interface MigrateOptions {
  /** A `postgres://` address of the server itself, not of a connection pooler. */
  readonly url: string
  readonly direction: 'up' | 'down'
  /** Maximum number of migrations. By default, all pending ones are applied, or one is rolled back. */
  readonly count?: number | undefined
  /** Rolls everything back, and makes the promise reject with the signal's reason. */
  readonly signal?: AbortSignal
  /** Called before COMMIT is sent. From then on the signal has no effect. */
  readonly onCommit?: () => void
  /** Roles that get privileges on the tables after the migrations. */
  readonly roles?: Roles
  /** Called with a line for the user. */
  readonly notice?: (line: string) => void
}

/**
 * Applies or rolls back migrations in one transaction, and returns their names. Then, in another one, grants the roles their
 * privileges. Processes that migrate the same database wait for each other, so that the first one does the work.
 *
 * @throws {MigrationError} if a migration or a grant cannot run or has failed
 * @throws what `withClient` throws
 */
export async function migrate(options: MigrateOptions): Promise<string[]> {
  const { names } = await runMigrations(options, false)
  const { roles = {}, notice = () => {} } = options
  if (roles.server === undefined && roles.operator === undefined) return names
  const { PG_MIGRATE_LOCK_ID } = await import('node-pg-migrate')
  await inTransaction({ ...connectionOf(options), readOnly: false }, async (transaction) => {
    // Concurrent grants on the same table would fail.
    await transaction.takeAdvisoryLock(PG_MIGRATE_LOCK_ID)
    await grantPrivileges(transaction, roles, notice)
  })
  return names
}

/** Returns the SQL with which `migrate` would run the migrations now, and changes nothing. Throws what `migrate` throws. */
export async function migrationSql(options: MigrateOptions): Promise<string> {
  const { sql } = await runMigrations(options, true)
  if (sql.length === 0) return `-- No migration is ${options.direction === 'up' ? 'pending' : 'applied'}.`
  return ['BEGIN;', "SET LOCAL TIME ZONE 'UTC';", ...sql, 'COMMIT;'].join('\n')
}

function connectionOf({
  url,
  signal = new AbortController().signal,
  onCommit = () => {},
}: MigrateOptions): ClientOptions {
  return {
    url,
    signal,
    onCommit,
    session: { application_name: 'petstore-inventory migrate', lock_timeout: LOCK_TIMEOUT_MS },
  }
}

interface Run {
  readonly names: string[]
  readonly sql: string[]
}

/** Runs node-pg-migrate on a connection of its own. A dry run only collects the SQL. */
function runMigrations(options: MigrateOptions, dryRun: boolean): Promise<Run> {
  const { direction, count, roles = {} } = options
  return withClient(connectionOf(options), async (client, commit) => {
    const { schema, hasTable } = await checkServer(client)
    await checkRoles(client, roles)
    await setUpSession(client)
    // node-pg-migrate creates its table outside of its transaction, in a dry run, too.
    if (dryRun) await client.query('BEGIN')
    if (hasTable) await client.query(ORDER_BY_NAME)

    /** node-pg-migrate hides it behind errors of its own. */
    let failure: unknown
    const query = async (text: string | pg.QueryConfig, values?: unknown[]): Promise<unknown> => {
      try {
        if (text !== 'COMMIT') return await client.query(text, values)
        return dryRun ? undefined : await commit()
      } catch (error) {
        failure ??= error
        throw error
      }
    }
    let running: string | undefined
    const sql: string[] = []
    const logger = {
      debug: (text: string) => sql.push(text.trim()),
      info: (line: string) => {
        running = /^### MIGRATION (\S+)/.exec(line)?.[1] ?? running
      },
      warn: () => {},
      error: () => {},
    }
    const { runner } = await import('node-pg-migrate')
    try {
      const ran = await runner({
        dbClient: Object.create(client, { query: { value: query } }),
        dir: MIGRATIONS_FOLDER,
        ignorePattern: '(?!\\d+_).*',
        direction,
        ...(count === undefined ? {} : { count }),
        migrationsTable: APPLIED_TABLE,
        migrationsSchema: schema,
        singleTransaction: true,
        advisoryLockMode: 'wait',
        dryRun,
        verbose: true,
        logger,
      })
      return { names: ran.map(({ name }) => name), sql }
    } catch (error) {
      throw explained(error, failure, running)
    }
  })
}

/** Returns the schema of the tables, after checking that migrations can run there. */
async function checkServer(client: pg.Client): Promise<{ schema: string; hasTable: boolean }> {
  const query = {
    text: `WITH applied AS (SELECT relowner, relnamespace FROM pg_class WHERE oid = to_regclass('${APPLIED_TABLE}'))
      SELECT pg_is_in_recovery() AS "isStandby", ${IS_READ_ONLY} AS "isReadOnly", quote_ident(current_user) AS role,
        coalesce((SELECT nspname FROM pg_namespace JOIN applied ON oid = relnamespace), current_schema())::text AS schema,
        (SELECT pg_has_role(relowner, 'USAGE') FROM applied) AS owns,
        has_schema_privilege(current_schema(), 'CREATE') AS "mayCreate"`,
    query_timeout: FIRST_ANSWER_TIMEOUT_MS,
  }
  const { rows } = await client.query<{
    isStandby: boolean
    isReadOnly: boolean
    role: string
    schema: string
    owns: boolean | null
    mayCreate: boolean | null
  }>(query)
  const { isStandby, isReadOnly, role, schema, owns, mayCreate } = onlyRow(rows)
  if (isReadOnly) throw new DatabaseUnavailableError(new ReadOnlyServerError(isStandby))
  if (owns === false) {
    throw new MigrationError(
      `The role ${role} does not own the tables; nothing was changed. Run migrations as their owner; with docker compose, run "docker compose run --rm --no-deps migrate".`,
    )
  }
  if (owns === null && !mayCreate) {
    throw new MigrationError(
      `The role ${role} may not create tables in the first schema of its search_path; nothing was changed. ` +
        'Run migrations as the owner of the database, or GRANT CREATE ON SCHEMA.',
    )
  }
  return { schema, hasTable: owns !== null }
}

/** @throws {MigrationError} if one of the roles does not exist */
async function checkRoles(client: pg.Client, roles: Roles): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    'SELECT quote_ident(name) AS name FROM unnest($1::text[]) AS name WHERE name NOT IN (SELECT rolname FROM pg_roles)',
    [Object.values(roles)],
  )
  const [missing] = rows
  if (missing === undefined) return
  throw new MigrationError(
    `There is no role ${missing.name}; nothing was changed. Create it first: CREATE ROLE ${missing.name} LOGIN PASSWORD '…'`,
  )
}

/** Removes the time limits that the role may have, and records times in UTC. */
async function setUpSession(client: pg.Client): Promise<void> {
  await client.query(NO_TRANSACTION_TIMEOUT)
  await client.query("SET statement_timeout = 0; SET client_min_messages = warning; SET TIME ZONE 'UTC'")
  // Ends a long statement soon after an interruption. Servers on Windows do not support it.
  await client.query("SET client_connection_check_interval = '200ms'").catch((error: unknown) => {
    if (!(error instanceof pg.DatabaseError)) throw error
  })
}

/**
 * Describes why node-pg-migrate has failed. PostgreSQL has rolled back the transaction.
 *
 * @param failure PostgreSQL's error, which node-pg-migrate may hide behind one of its own
 * @param migration the last one that it has begun
 */
function explained(error: unknown, failure: unknown, migration: string | undefined): unknown {
  if (failure === undefined) {
    return new MigrationError(`${error instanceof Error ? error.message : error}; nothing was changed.`)
  }
  if (hasCause(failure, 'locked')) {
    return new MigrationError(
      migration === undefined
        ? 'Other migrations of this database are still running; nothing was changed. Run it again when they have ended.'
        : `The migration ${migration} did not get a lock in time; nothing was changed. Run it again when the sessions with locks, such as a backup, an import or an open transaction, have ended.`,
    )
  }
  const isFailed = failure instanceof pg.DatabaseError && !isFatal(failure) && !hasCause(failure, 'forbidden')
  if (!isFailed || migration === undefined) return failure
  return new MigrationError(
    `The migration ${migration} failed: ${messageWithDetail(failure)}; nothing was changed.`,
  )
}
