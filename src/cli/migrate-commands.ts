import type { Command } from 'commander'
import { grantPrivileges, type Roles } from '../database/admin/grants.ts'
import { migrate } from '../database/admin/migrate.ts'
import { appliedMigrations, migrationRecords } from '../database/migrations.ts'
import { integerFrom } from './arguments.ts'
import { read } from './database.ts'
import { exitCodes, unconfirmed } from './failure.ts'
import { abortOnSignals } from './interruption.ts'
import { print, printJson, printTable } from './output.ts'

/** Adds `inventory migrate up|down|status`. */
export function addMigrateCommands(program: Command, databaseUrl: () => Promise<string>): void {
  const migrations = program
    .command('migrate')
    .description('change the schema of the database')
    .addHelpText('after', '\nExample:\n  inventory migrate up')

  migrations
    .command('up')
    .description('apply all pending migrations; concurrent runs wait for each other')
    .option('--server-role <role>', 'grant this role what the server needs, and nothing else')
    .option('--operator-role <role>', 'grant this role what the other commands need')
    .addHelpText('after', '\nExample:\n  inventory migrate up --server-role inventory_server')
    .action(async ({ serverRole, operatorRole }: { serverRole?: string; operatorRole?: string }) => {
      const options = { url: await databaseUrl(), ...abortOnSignals() }
      const applied = await migrate({ ...options, direction: 'up' })
      await printEach('Applied', applied, 'No migration is pending.')
      const roles: Roles = { server: serverRole, operator: operatorRole }
      const granted = Object.entries(roles).filter(([, role]) => role !== undefined)
      if (granted.length === 0) return
      await grantPrivileges(options, roles)
      const grants = granted.map(([purpose, role]) => `Granted the role "${role}" what the ${purpose} needs.`)
      await print(...grants)
    })

  migrations
    .command('down')
    .description('roll back the newest migration, and delete the data that it added')
    .argument('[count]', 'roll back at most N', integerFrom(1))
    .option('--yes', 'confirm the loss of data')
    .addHelpText('after', '\nExample:\n  inventory migrate down --yes')
    .action(async (count: number | undefined, { yes }: { yes?: true }) => {
      const url = await databaseUrl()
      const names = (await read(url, appliedMigrations)).slice(-(count ?? 1)).reverse()
      const consequence = `This rolls back ${names.join(', ')}, and deletes the data that they added`
      if (names.length > 0 && !yes) throw unconfirmed(consequence, '--yes')
      const rolledBack = await migrate({ url, direction: 'down', count, ...abortOnSignals() })
      await printEach('Rolled back', rolledBack, 'No migration is applied.')
    })

  migrations
    .command('status')
    .description('show the migrations; exit with code 3 if one is pending')
    .option('--json', 'print a JSON array')
    .addHelpText('after', '\nExample:\n  inventory migrate status')
    .action(async ({ json }: { json?: true }) => {
      const records = await read(await databaseUrl(), migrationRecords)
      const rows = records.map(({ name, state, appliedAt }) => [name, state, appliedAt ?? '-'])
      await (json ? printJson(records) : printTable(['MIGRATION', 'STATE', 'APPLIED'], rows))
      if (records.some(({ state }) => state === 'pending')) process.exitCode = exitCodes.refused
    })
}

/** Prints a line for each migration that has run. */
function printEach(what: string, names: readonly string[], none: string): Promise<void> {
  return print(...(names.length === 0 ? [none] : names.map((name) => `${what} ${name}`)))
}
