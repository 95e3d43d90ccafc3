import type { Command } from 'commander'
import { countKeys } from '../api-keys/stored-keys.ts'
import { parseAddress } from '../database/address.ts'
import type { Database } from '../database/database.ts'
import { isDiskFull } from '../database/disk-full.ts'
import { missingPrivileges } from '../database/grants.ts'
import { lastBackup } from '../database/last-backup.ts'
import { knownMigrations, migrationRecords, namesOf } from '../database/migrations.ts'
import {
  disabledTriggers,
  hasTable,
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

const DISK_FULL = 'the disk of PostgreSQL is full: writes fail, and PostgreSQL may stop; free space'

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
        (database) => statusOf(database, url, serverRole, roleInAddress()),
        countLimits,
        // It reports row security, and shows what the role can see.
        { row_security: 'on' },
      )
      await print(json ? JSON.stringify(status, null, 2) : describe(status))
      const { schema, serverRole: role, rowSecurity } = status
      if (schema.pending.length + (role?.missing.length ?? 0) + rowSecurity.length > 0)
        process.exitCode = exitCodes.refused
    })
}

type Status = Awaited<ReturnType<typeof statusOf>>

/** Returns what `inventory status --json` prints. */
async function statusOf(
  database: Database,
  url: string,
  namedRole: string | undefined,
  roleInAddress: string | undefined,
) {
  const { version, readOnly, connections } = await serverStatus(database)
  const known = await knownMigrations()
  const migrations = await migrationRecords(database, known)
  const warnings = (await disabledTriggers(database, 'inventory')).map(
    (name) =>
      `the trigger ${name} is disabled, so it does nothing; run "ALTER TABLE inventory ENABLE TRIGGER ${name}"`,
  )
  return {
    database: { version, address: parseAddress(url).name, readOnly },
    schema: {
      /** The newest migration of this version. */
      expected: known.at(-1),
      /** Migrations of this version that have not been applied. */
      pending: namesOf(migrations, 'pending'),
      /** Applied migrations that this version does not know: a newer version is deployed. */
      unknown: namesOf(migrations, 'unknown'),
    },
    /** Null if the table does not exist yet. */
    entries: (await hasTable(database, 'inventory')) ? entriesByStatus(await stockLevels(database)) : null,
    keys: (await hasTable(database, 'api_keys')) ? await countKeys(database) : null,
    connections,
    /** When the last recorded backup was made, in ISO 8601; null if none is recorded. */
    lastBackup: (await lastBackup(database))?.toISOString() ?? null,
    /** Null if the role of the server is unknown. */
    serverRole: await serverRoleOf(database, namedRole, roleInAddress),
    /** Tables of which a role may not see all rows, so that the server is not ready. */
    rowSecurity: await rowSecurityOf(database, ['inventory', 'api_keys'], namedRole ?? roleInAddress),
    /** What the operator should change. The disk is looked at last, because that changes a setting of the connection. */
    warnings: [...warnings, ...((await isDiskFull(database)) ? [DISK_FULL] : [])],
  }
}

function entriesByStatus(levels: readonly StockLevel[]): Record<string, number> {
  return Object.fromEntries(levels.map(({ status, entries }) => [status, entries]))
}

/**
 * Returns the role of the server with the privileges that it lacks, such as `SELECT on pgmigrations`.
 *
 * @throws {CommandFailure} if the role that the operator named does not exist
 */
async function serverRoleOf(
  database: Database,
  named: string | undefined,
  inAddress: string | undefined,
): Promise<{ role: string; missing: readonly string[] } | null> {
  const role = named ?? inAddress
  const missing = role === undefined ? undefined : await missingPrivileges(database, 'server', role)
  if (role !== undefined && missing !== undefined) return { role, missing }
  if (named !== undefined) throw new CommandFailure(`There is no role "${printable(named)}".`)
  return null
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

function describeRole({ role, missing }: NonNullable<Status['serverRole']>): string {
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
