import type { Command } from 'commander'
import { type ApiKey, listKeys } from '../api-keys/stored-keys.ts'
import { parseAddress } from '../database/address.ts'
import { missingPrivileges } from '../database/admin/grants.ts'
import { knownMigrations } from '../database/admin/migration-files.ts'
import { migrationRecords, namesOf } from '../database/admin/migrations.ts'
import {
  disabledTriggers,
  hasTable,
  lastBackup,
  rowSecurityOf,
  serverStatus,
} from '../database/admin/server-status.ts'
import type { Pool } from '../database/pool.ts'
import { stockLevels } from '../inventory/reports/stock-levels.ts'
import { exitCodes } from '../process/exit-codes.ts'
import { printable } from '../process/printable.ts'
import { countLimits, withDatabase } from './database.ts'
import { CommandFailure } from './failure.ts'
import { formatTable } from './format.ts'
import { print } from './output.ts'

/**
 * Adds `inventory status`.
 *
 * @param roleInAddress returns the role in the server's address
 */
export function addStatusCommand(
  program: Command,
  databaseUrl: () => Promise<string>,
  roleInAddress: () => string | undefined,
): void {
  program
    .command('status')
    .description('show database status; exit with code 3 unless the server can use the database')
    .option('--server-role <role>', 'check the privileges of this role, which the server uses')
    .option('--json', 'print a JSON object')
    .addHelpText('after', '\nExample:\n  inventory status --json')
    .action(async ({ json, serverRole }: { json?: true; serverRole?: string }) => {
      const url = await databaseUrl()
      const read = (database: Pool): ReturnType<typeof statusOf> =>
        statusOf(database, parseAddress(url).name, serverRole ?? roleInAddress())
      // It reports row security, and shows what the role can see.
      const { isReady, ...status } = await withDatabase(url, read, countLimits, { row_security: 'on' })
      if (serverRole !== undefined && status.serverRole === null)
        throw new CommandFailure(`There is no role "${printable(serverRole)}".`)
      await print(json ? JSON.stringify(status, null, 2) : formatTable(['STATUS', ''], rowsOf(status)))
      if (!isReady) process.exitCode = exitCodes.refused
    })
}

/** Returns what `inventory status` prints, and whether the server can use the database. `role` is the server's, if it is known. */
async function statusOf(database: Pool, address: string, role: string | undefined) {
  const { version, readOnly } = await serverStatus(database)
  const known = await knownMigrations()
  const migrations = await migrationRecords(database, known)
  const pending = namesOf(migrations, 'pending')
  const missing = role === undefined ? undefined : await missingPrivileges(database, 'server', role)
  const hidden = await rowSecurityOf(database, ['inventory', 'api_keys'], role)
  const disabled = await disabledTriggers(database, 'inventory')
  return {
    isReady: pending.length + (missing?.length ?? 0) + hidden.length === 0,
    database: { version, address, readOnly },
    schema: {
      /** The newest migration of this version. */
      expected: known.at(-1),
      /** Migrations of this version that have not been applied. */
      pending,
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
    /** What the operator should change. */
    warnings: [
      ...(pending.length > 0 ? ['The schema is behind; run "inventory migrate up"'] : []),
      ...(missing?.length
        ? [
            `${role} lacks privileges; run "inventory migrate up --server-role ${role}" as the owner of the tables`,
          ]
        : []),
      ...hidden.map(
        ({ table, role }) =>
          `Row security may hide rows of ${table} from ${role}; run "ALTER TABLE ${table} DISABLE ROW LEVEL SECURITY" or "ALTER ROLE ${role} BYPASSRLS"`,
      ),
      ...disabled.map(
        (name) =>
          `The trigger ${name} is disabled, so it does nothing; run "ALTER TABLE inventory ENABLE TRIGGER ${name}"`,
      ),
    ],
  }
}

async function countEntries(database: Pool): Promise<Record<string, number>> {
  return Object.fromEntries((await stockLevels(database)).map(({ status, entries }) => [status, entries]))
}

function countKeys(keys: readonly ApiKey[]): Record<ApiKey['state'], number> {
  const counts = { active: 0, ending: 0, expired: 0, revoked: 0, invalid: 0 }
  for (const { state } of keys) counts[state] += 1
  return counts
}

/** Returns a row for each fact, such as `schema.pending`, and for each element of a list. */
function rowsOf(fact: unknown, name = ''): string[][] {
  if (fact === null || (Array.isArray(fact) && fact.length === 0)) return [[name, '-']]
  if (Array.isArray(fact)) return fact.flatMap((element) => rowsOf(element, name))
  if (typeof fact !== 'object') return [[name, String(fact)]]
  return Object.entries(fact).flatMap(([part, value]) =>
    rowsOf(value, name === '' ? part : `${name}.${part}`),
  )
}
