import type { Command } from 'commander'
import { type ApiKey, listKeys } from '../api-keys/stored-keys.ts'
import { parseAddress } from '../database/address.ts'
import { disabledTriggers, lastBackup, serverStatus } from '../database/admin/server-status.ts'
import { hasTable, knownMigrations, listNames, migrationRecords } from '../database/migrations.ts'
import type { StatementRunner } from '../database/statement.ts'
import { stockLevels } from '../inventory/reports/stock-levels.ts'
import { read } from './database.ts'
import { exitCodes } from './failure.ts'
import { printJson, printTable } from './output.ts'

/** Adds `inventory status`. */
export function addStatusCommand(program: Command, databaseUrl: () => Promise<string>): void {
  program
    .command('status')
    .description('show database status; exit with code 3 if migrations are pending')
    .option('--json', 'print a JSON object')
    .addHelpText('after', '\nExample:\n  inventory status --json')
    .action(async ({ json }: { json?: true }) => {
      const url = await databaseUrl()
      const status = await read(url, (database) => readStatus(database, parseAddress(url).name))
      await (json ? printJson(status) : printTable(['STATUS', ''], toRows(status)))
      if (status.schema.pending.length > 0) process.exitCode = exitCodes.refused
    })
}

/** Returns what `inventory status` prints. */
async function readStatus(database: StatementRunner, address: string) {
  const { version, readOnly } = await serverStatus(database)
  const migrations = await migrationRecords(database)
  const pending = listNames(migrations, 'pending')
  const disabled = await disabledTriggers(database)
  return {
    database: { version, address, readOnly },
    schema: {
      /** The newest migration of this version. */
      expected: knownMigrations.at(-1),
      /** Migrations of this version that have not been applied. */
      pending,
      /** Applied migrations that this version does not know: a newer version is deployed. */
      unknown: listNames(migrations, 'unknown'),
    },
    /** Null if the table does not exist yet. */
    entries: (await hasTable(database, 'inventory')) ? await countEntries(database) : null,
    keys: (await hasTable(database, 'api_keys')) ? countKeys(await listKeys(database)) : null,
    /** When the last recorded backup was made, in ISO 8601; null if none is recorded. */
    lastBackup: (await lastBackup(database))?.toISOString() ?? null,
    /** What the operator should change. */
    warnings: [
      ...(pending.length > 0 ? ['The schema is behind; run "inventory migrate up"'] : []),
      ...disabled.map(
        (name) =>
          `The trigger ${name} is disabled, so it does nothing; run "ALTER TABLE inventory ENABLE TRIGGER ${name}"`,
      ),
    ],
  }
}

async function countEntries(database: StatementRunner): Promise<Record<string, number>> {
  return Object.fromEntries((await stockLevels(database)).map(({ status, entries }) => [status, entries]))
}

function countKeys(keys: readonly ApiKey[]): Record<ApiKey['state'], number> {
  const counts = { active: 0, ending: 0, expired: 0, revoked: 0 }
  for (const { state } of keys) counts[state] += 1
  return counts
}

/** Returns a row for each fact, such as `schema.pending`, and for each element of a list. */
function toRows(fact: unknown, name = ''): string[][] {
  if (fact === null || (Array.isArray(fact) && fact.length === 0)) return [[name, '-']]
  if (Array.isArray(fact)) return fact.flatMap((element) => toRows(element, name))
  if (typeof fact !== 'object') return [[name, String(fact)]]
  return Object.entries(fact).flatMap(([part, value]) =>
    toRows(value, name === '' ? part : `${name}.${part}`),
  )
}
