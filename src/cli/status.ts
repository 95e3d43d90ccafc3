import type { Command } from 'commander'
import { type ApiKey, countKeys } from '../api-keys/stored-keys.ts'
import { parseAddress } from '../database/address.ts'
import type { Database } from '../database/database.ts'
import { isDiskFull } from '../database/disk-full.ts'
import { missingPrivileges } from '../database/grants.ts'
import { lastBackup } from '../database/last-backup.ts'
import { appliedMigrations, knownMigrations } from '../database/migrations.ts'
import {
  disabledTriggers,
  hasTable,
  type RowSecurity,
  rowSecurityOf,
  type ServerStatus,
  serverStatus,
} from '../database/server-status.ts'
import { type StockLevel, stockLevels } from '../inventory/reports/stock-levels.ts'
import { exitCodes } from '../process/exit-codes.ts'
import { printable } from '../process/printable.ts'
import { countLimits, withDatabase } from './connection.ts'
import { CommandFailure } from './failure.ts'
import { formatNumber } from './format.ts'
import { print } from './output.ts'

/** The role that the server uses. */
interface ServerRole {
  readonly role: string
  /** The privileges that it lacks, such as `SELECT on pgmigrations`. */
  readonly missing: readonly string[]
}

const DISK_FULL = 'the disk of PostgreSQL is full: writes fail, and PostgreSQL may stop; free space'

/** The output of `inventory status --json`. */
interface Status {
  readonly database: {
    readonly version: string
    readonly address: string
    readonly readOnly: ServerStatus['readOnly']
  }
  readonly schema: {
    /** The newest migration of this version. */
    readonly expected: string | undefined
    /** Migrations of this version that have not been applied. */
    readonly pending: string[]
    /** Applied migrations that this version does not know: a newer version is deployed. */
    readonly unknown: string[]
  }
  /** Null if the table does not exist yet. */
  readonly entries: Record<string, number> | null
  readonly keys: Record<ApiKey['state'], number> | null
  readonly connections: ServerStatus['connections']
  /** When the last recorded backup was made, in ISO 8601; null if none is recorded. */
  readonly lastBackup: string | null
  /** Null if the role of the server is unknown. */
  readonly serverRole: ServerRole | null
  /** Tables of which a role may not see all rows, so that the server is not ready. */
  readonly rowSecurity: readonly RowSecurity[]
  /** What the operator should change. */
  readonly warnings: readonly string[]
}

/**
 * Adds `inventory status`.
 *
 * @param roleInAddress returns the role in the server's address, if the operators use another one
 */
export function addStatusCommand(
  program: Command,
  databaseUrl: () => Promise<string>,
  roleInAddress: () => string | undefined,
): void {
  program
    .command('status')
    .description(
      'show database status; exit with code 3 if the schema is behind, a privilege is missing or rows are hidden',
    )
    .option('--server-role <role>', 'check the privileges of this role, which the server uses')
    .option('--json', 'print a JSON object')
    .addHelpText('after', '\nExample:\n  inventory status --json')
    .action(async ({ json, serverRole }: { json?: true; serverRole?: string }) => {
      const url = await databaseUrl()
      const status = await withDatabase(
        url,
        async (database) => ({
          ...(await statusOf(database, url)),
          serverRole: await serverRoleOf(database, serverRole, roleInAddress()),
          rowSecurity: await rowSecurityOf(
            database,
            ['inventory', 'api_keys'],
            serverRole ?? roleInAddress(),
          ),
        }),
        countLimits,
        // It reports row security, and shows what the role can see.
        { row_security: 'on' },
      )
      await print(json ? JSON.stringify(status, null, 2) : describe(status))
      const lacking = status.serverRole?.missing ?? []
      if (status.schema.pending.length + lacking.length + status.rowSecurity.length > 0)
        process.exitCode = exitCodes.refused
    })
}

async function statusOf(
  database: Database,
  url: string,
): Promise<Omit<Status, 'serverRole' | 'rowSecurity'>> {
  const { version, readOnly, connections, asynchronousCommit } = await serverStatus(database)
  const known = await knownMigrations()
  const applied = (await appliedMigrations(database)).map(({ name }) => name)
  const hasInventory = await hasTable(database, 'inventory')
  const hasKeys = await hasTable(database, 'api_keys')
  return {
    database: { version, address: addressOf(url), readOnly },
    schema: {
      expected: known.at(-1),
      pending: known.filter((name) => !applied.includes(name)),
      unknown: applied.filter((name) => !known.includes(name)),
    },
    entries: hasInventory ? entriesByStatus(await stockLevels(database)) : null,
    keys: hasKeys ? await countKeys(database) : null,
    connections,
    lastBackup: (await lastBackup(database))?.toISOString() ?? null,
    warnings: [
      ...asynchronousCommit.map(
        (whom) =>
          `synchronous_commit is off for ${whom}: a crash of PostgreSQL loses acknowledged updates; set it to on`,
      ),
      ...(await disabledTriggers(database, 'inventory')).map(
        (trigger) =>
          `the trigger ${trigger} is disabled, so it does nothing; run "ALTER TABLE inventory ENABLE TRIGGER ${trigger}"`,
      ),
      // Last, because it changes a setting of the connection.
      ...((await isDiskFull(database)) ? [DISK_FULL] : []),
    ],
  }
}

function entriesByStatus(levels: readonly StockLevel[]): Record<string, number> {
  return Object.fromEntries(levels.map(({ status, entries }) => [status, entries]))
}

/** @throws {CommandFailure} if the role that the operator named does not exist */
async function serverRoleOf(
  database: Database,
  named: string | undefined,
  inAddress: string | undefined,
): Promise<ServerRole | null> {
  const role = named ?? inAddress
  if (role === undefined) return null
  const missing = await missingPrivileges(database, role)
  if (missing !== undefined) return { role, missing }
  if (named !== undefined) throw new CommandFailure(`There is no role "${printable(named)}".`)
  return null
}

/** Host, port and database, without role, password and other parameters, which may contain secrets. */
function addressOf(url: string): string {
  return `${parseAddress(url).name}${new URL(url).pathname}`
}

const readOnlyTexts: Readonly<Record<NonNullable<ServerStatus['readOnly']>, string>> = {
  standby: ', a standby: it is read-only, and may be behind the primary',
  setting: ', read-only: default_transaction_read_only is on',
}

function describe(status: Status): string {
  const { database, schema, entries, keys, connections, serverRole, rowSecurity, warnings } = status
  return [
    `Database     PostgreSQL ${database.version} at ${database.address}${database.readOnly === null ? '' : readOnlyTexts[database.readOnly]}`,
    `Schema       ${describeSchema(schema)}`,
    `Entries      ${describeCounts(entries)}`,
    `Keys         ${describeCounts(keys)}`,
    `Connections  ${connections.inUse} of ${connections.limit} in use, ${connections.ofThisService} by this service`,
    `Last backup  ${describeAge(status.lastBackup)}`,
    ...(serverRole === null ? [] : [`Server role  ${describeRole(serverRole)}`]),
    ...rowSecurity.map(
      ({ table, role }) =>
        `Row security may hide rows of ${table} from ${role}; run "ALTER TABLE ${table} DISABLE ROW LEVEL SECURITY" or "ALTER ROLE ${role} BYPASSRLS"`,
    ),
    ...warnings.map((warning) => `Warning      ${warning}`),
  ]
    .map(printable)
    .join('\n')
}

function describeSchema({ expected, pending, unknown }: Status['schema']): string {
  if (pending.length > 0) return `behind; run "inventory migrate up" to apply ${pending.join(', ')}`
  if (unknown.length > 0) return `newer than this version, by ${unknown.join(', ')}`
  return `up to date (${expected})`
}

function describeAge(time: string | null): string {
  if (time === null) return 'none recorded'
  return `${((Date.now() - Date.parse(time)) / 3_600_000).toFixed(1)} hours ago, at ${time}`
}

function describeRole({ role, missing }: ServerRole): string {
  if (missing.length === 0) return `${role} has the privileges that the server needs`
  const command = `inventory migrate up --server-role ${role}`
  return `${role} lacks ${missing.join(', ')}; run "${command}" as the owner of the tables`
}

function describeCounts(counts: Record<string, number> | null): string {
  if (counts === null) return 'no table yet'
  return Object.entries(counts)
    .map(([name, count]) => `${formatNumber(count)} ${name}`)
    .join(', ')
}
