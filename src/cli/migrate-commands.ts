import type { Command } from 'commander'
import { grantPrivileges, type Roles } from '../database/admin/grants.ts'
import { createMigration, migrate } from '../database/admin/migrate.ts'
import { appliedMigrations, migrationRecords } from '../database/admin/migrations.ts'
import { exitCodes } from '../process/exit-codes.ts'
import { integerFrom, matching } from './arguments.ts'
import { commandOptions, read } from './database.ts'
import { unconfirmed } from './failure.ts'
import { formatTable } from './format.ts'
import { print } from './output.ts'

const readName = matching(/^[a-z0-9]+(-[a-z0-9]+)*$/, 'words of a-z and 0-9 joined by hyphens')

/** Adds `inventory migrate up|down|status|create`. */
export function addMigrateCommands(
  program: Command,
  databaseUrl: () => Promise<string>,
  isProduction: () => boolean,
): void {
  const run = async (url: string, direction: 'up' | 'down', count?: number, roles: Roles = {}) => {
    const options = { url, direction, count, ...commandOptions() }
    const ran = await migrate(options)
    const lines = ran.map((name) => `${direction === 'up' ? 'Applied' : 'Rolled back'} ${name}`)
    await print(lines.join('\n') || `No migration is ${direction === 'up' ? 'pending' : 'applied'}.`)
    const granted = Object.entries(roles).filter(([, role]) => role !== undefined)
    if (granted.length === 0) return
    await grantPrivileges(options, roles)
    const grants = granted.map(([purpose, role]) => `Granted the role "${role}" what the ${purpose} needs.`)
    await print(grants.join('\n'))
  }

  const migrations = program
    .command('migrate')
    .description('change the schema of the database')
    .addHelpText('after', '\nExample:\n  inventory migrate up')

  migrations
    .command('up')
    .description('apply all pending migrations; concurrent runs wait for each other')
    .argument('[count]', 'apply at most N', integerFrom(1))
    .option('--server-role <role>', 'grant this role what the server needs, and nothing else')
    .option('--operator-role <role>', 'grant this role what the other commands need')
    .addHelpText('after', '\nExample:\n  inventory migrate up --server-role inventory_server')
    .action(async (count: number | undefined, roles: { serverRole?: string; operatorRole?: string }) =>
      run(await databaseUrl(), 'up', count, { server: roles.serverRole, operator: roles.operatorRole }),
    )

  migrations
    .command('down')
    .description('roll back the newest migration, and delete the data that it added')
    .argument('[count]', 'roll back at most N', integerFrom(1))
    .option('--yes', 'confirm the loss of data')
    .option('--force', 'roll back although NODE_ENV is production')
    .addHelpText('after', '\nExample:\n  inventory migrate down --yes')
    .action(async (count: number | undefined, options: { yes?: true; force?: true }) => {
      const url = await databaseUrl()
      const applied = await read(url, appliedMigrations)
      const names = applied.slice(-(count ?? 1)).reverse()
      const consequence = `This rolls back ${names.join(', ')}, and deletes the data that they added`
      const option = isProduction() ? 'force' : 'yes'
      if (names.length > 0 && !options[option]) throw unconfirmed(consequence, `--${option}`)
      return run(url, 'down', count)
    })

  migrations
    .command('status')
    .description('show the migrations; exit with code 3 if one is pending')
    .option('--json', 'print a JSON array')
    .addHelpText('after', '\nExample:\n  inventory migrate status')
    .action(async ({ json }: { json?: true }) => {
      const records = await read(await databaseUrl(), migrationRecords)
      const rows = records.map(({ name, state, appliedAt }) => [name, state, appliedAt ?? '-'])
      await print(
        json ? JSON.stringify(records, null, 2) : formatTable(['MIGRATION', 'STATE', 'APPLIED'], rows),
      )
      if (records.some(({ state }) => state === 'pending')) process.exitCode = exitCodes.refused
    })

  migrations
    .command('create')
    .description('create an empty migration in the folder migrations')
    .argument('<name>', 'what the migration does, such as add-price', readName)
    .addHelpText('after', '\nExample:\n  inventory migrate create add-price')
    .action(async (name: string) => print(await createMigration(name, 'migrations')))
}
