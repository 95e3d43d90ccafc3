import type { Command } from 'commander'
import { type ApiKey, listKeys } from '../api-keys/stored-keys.ts'
import { parseAddress } from '../database/address.ts'
import type { Database } from '../database/database.ts'
import { missingPrivileges } from '../database/grants.ts'
import { lastBackup } from '../database/last-backup.ts'
import { knownMigrations, migrationRecords, namesOf } from '../database/migrations.ts'
import { disabledTriggers, hasTable, rowSecurityOf, serverStatus } from '../database/server-status.ts'
import { stockLevels } from '../inventory/reports/stock-levels.ts'
import { exitCodes } from '../process/exit-codes.ts'
import { printable } from '../process/printable.ts'
import { countLimits, withDatabase } from './connection.ts'
import { CommandFailure } from './failure.ts'
import { formatNumber } from './format.ts'
import { print } from './output.ts'

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
      const read = (database: Database): ReturnType<typeof statusOf> =>
        statusOf(database, parseAddress(url).name, serverRole ?? roleInAddress())
      // It reports row security, and shows what the role can see.
      const status = await withDatabase(url, read, countLimits, { row_security: 'on' })
      if (serverRole !== undefined && status.serverRole === null)
        throw new CommandFailure(`There is no role "${printable(serverRole)}".`)
      await print(json ? JSON.stringify(status, null, 2) : describe(status))
      const { schema, serverRole: checked, rowSecurity } = status
      if (schema.pending.length + (checked?.missing.length ?? 0) + rowSecurity.length > 0)
        process.exitCode = exitCodes.refused
    })
}

type Status = Awaited<ReturnType<typeof statusOf>>

/** Returns what `inventory status --json` prints. `role` is that of the server, if it is known. */
async function statusOf(database: Database, address: string, role: string | undefined) {
  const { version, readOnly } = await serverStatus(database)
  const known = await knownMigrations()
  const migrations = await migrationRecords(database, known)
  const missing = role === undefined ? undefined : await missingPrivileges(database, 'server', role)
  return {
    database: { version, address, readOnly },
    schema: {
      /** The newest migration of this version. */
      expected: known.at(-1),
      /** Migrations of this version that have not been applied. */
      pending: namesOf(migrations, 'pending'),
      /** Applied migrations that this version does not know: a newer version is deployed. */
      unknown: namesOf(migrations, 'unknown'),
    },
    /** Null if the table does not exist yet. */
    entries: (await hasTable(database, 'inventory')) ? await countEntries(database) : null,
    keys: (await hasTable(database, 'api_keys')) ? countKeys(await listKeys(database)) : null,
    /** When the last recorded backup was made, in ISO 8601; null if none is recorded. */
    lastBackup: (await lastBackup(database))?.toISOString() ?? null,
    /** Null if the role of the server is unknown. */
    serverRole: role === undefined || missing === undefined ? null : { role, missing },
    /** Tables of which a role may not see all rows, so that the server is not ready. */
    rowSecurity: await rowSecurityOf(database, ['inventory', 'api_keys'], role),
    /** What the operator should change. */
    warnings: (await disabledTriggers(database, 'inventory')).map(
      (name) =>
        `the trigger ${name} is disabled, so it does nothing; run "ALTER TABLE inventory ENABLE TRIGGER ${name}"`,
    ),
  }
}

async function countEntries(database: Database): Promise<Record<string, number>> {
  return Object.fromEntries((await stockLevels(database)).map(({ status, entries }) => [status, entries]))
}

function countKeys(keys: readonly ApiKey[]): Record<ApiKey['state'], number> {
  const counts = { active: 0, ending: 0, expired: 0, revoked: 0 }
  for (const { state } of keys) counts[state] += 1
  return counts
}

function describe(status: Status): string {
  const { database, serverRole, rowSecurity, warnings } = status
  const readOnly = database.readOnly === 'standby' ? 'a standby' : 'default_transaction_read_only is on'
  return [
    `Database     PostgreSQL ${database.version} at ${database.address}${database.readOnly === null ? '' : `, read-only: ${readOnly}`}`,
    `Schema       ${describeSchema(status.schema)}`,
    `Entries      ${describeCounts(status.entries)}`,
    `Keys         ${describeCounts(status.keys)}`,
    `Last backup  ${status.lastBackup ?? 'none recorded'}`,
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
