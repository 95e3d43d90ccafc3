import { type Command, InvalidArgumentError } from 'commander'
import {
  describeInvalidIndex,
  MigrationFailedError,
  MigrationOrderError,
  MigrationsRunningError,
  UnknownMigrationError,
} from '../database/migrations/errors.ts'
import { MigrationFileError } from '../database/migrations/files.ts'
import { type MigrationRecord, migrationHistory } from '../database/migrations/history.ts'
import { type MigrateOptions, migrate } from '../database/migrations/migrate.ts'
import { migrationSql, planRollback } from '../database/migrations/plan.ts'
import { GrantError, RoleError, type Roles } from '../database/migrations/privileges.ts'
import { createMigration } from '../database/migrations/runner.ts'
import { privileges } from '../privileges.ts'
import { exitCodes } from '../process/exit-codes.ts'
import { confirm } from './confirmation.ts'
import { countLimits, withDatabase } from './connection.ts'
import { CommandFailure } from './failure.ts'
import { OutputError, print } from './output.ts'
import { formatTable } from './table.ts'

interface UpOptions {
  readonly serverRole?: string
  readonly operatorRole?: string
  readonly dryRun?: true
}

interface DownOptions {
  readonly yes?: true
  readonly force?: true
  readonly dryRun?: true
}

/** Adds `inventory migrate up|down|status|create`. */
export function addMigrateCommands(
  program: Command,
  databaseUrl: () => Promise<string>,
  isProduction: () => boolean,
): void {
  const run = async (
    direction: MigrateOptions['direction'],
    count?: number,
    roles: Roles = {},
  ): Promise<void> => {
    // Not awaited here: an output that fails must not end a migration half-way.
    const lines: Promise<void>[] = []
    const ran = await migrate({
      url: await databaseUrl(),
      direction,
      grants: { roles, privileges },
      log: (line) => {
        const written = print(line)
        written.catch(() => {})
        lines.push(written)
      },
      notice: (line) => console.error(line),
      ...(count === undefined ? {} : { count }),
    }).catch(explainKnown)
    await Promise.all(lines).catch((error: unknown) => {
      const done = `${direction} ${ran.length === 0 ? 'without a pending migration' : ran.join(', ')}`
      throw error instanceof OutputError ? error.after(done) : error
    })
  }

  const migrations = program
    .command('migrate')
    .description('change the schema of the database')
    .addHelpText('after', '\nExample:\n  inventory migrate up')

  migrations
    .command('up')
    .description('apply all pending migrations; concurrent runs wait for each other')
    .argument('[count]', 'apply at most N', readCount)
    .option('--server-role <role>', 'grant this role what the server needs, and nothing else')
    .option('--operator-role <role>', 'grant this role what the other commands need')
    .option('--dry-run', 'print the SQL and run none of it; grants are not part of it')
    .addHelpText('after', '\nExample:\n  inventory migrate up --server-role inventory_server')
    .action(async (count: number | undefined, options: UpOptions) => {
      if (options.dryRun)
        return print(await migrationSql(await databaseUrl(), 'up', count).catch(explainKnown))
      return run('up', count, { server: options.serverRole, operator: options.operatorRole })
    })

  migrations
    .command('down')
    .description('roll back the newest migration, and delete the data that it added')
    .argument('[count]', 'roll back at most N', readCount)
    .option('--yes', 'confirm the loss of data; needed without a terminal')
    .option('--dry-run', 'print the SQL and run none of it')
    .option('--force', 'roll back although NODE_ENV is production')
    .addHelpText('after', '\nExample:\n  inventory migrate down 1')
    .action(async (count: number | undefined, { yes, force, dryRun }: DownOptions) => {
      const url = await databaseUrl()
      if (dryRun) return print(await migrationSql(url, 'down', count).catch(explainKnown))
      if (isProduction() && !force) {
        throw new CommandFailure(
          'NODE_ENV is production, where restoring a backup is safer than rolling back; nothing was changed. To roll back nevertheless, add --force.',
          exitCodes.unconfirmed,
        )
      }
      const plan = await withDatabase(
        url,
        (database) => planRollback(database, count ?? 1),
        countLimits,
      ).catch(explainKnown)
      if (plan.names.length > 0) {
        const names = plan.names.join(', ')
        const losses = plan.losses.length === 0 ? 'no table and no column' : plan.losses.join(', ')
        const consequence = `This rolls back ${names}, and removes ${losses}`
        if (yes) console.error(`${consequence}.`)
        else await confirm(consequence, '--yes')
      }
      await run('down', count)
    })

  migrations
    .command('status')
    .description('show the migrations; exit with code 3 unless all are applied or of a newer version')
    .option('--json', 'print a JSON array')
    .addHelpText('after', '\nExample:\n  inventory migrate status')
    .action(async ({ json }: { json?: true }) => {
      const records = await withDatabase(await databaseUrl(), migrationHistory)
      const rows = records.map(({ name, state, appliedAt }) => [name, state, appliedAt?.toISOString() ?? '-'])
      await print(
        json ? JSON.stringify(records, null, 2) : formatTable(['MIGRATION', 'STATE', 'APPLIED'], rows),
      )
      const isRight = records.every(({ state }) => state === 'applied' || state === 'unknown')
      if (!isRight) process.exitCode = exitCodes.refused
      for (const record of records)
        if (record.state === 'incomplete') console.error(describeIncomplete(record))
    })

  migrations
    .command('create')
    .description('create an empty migration in the folder migrations')
    .argument('<name>', 'what the migration does, such as add-price', readName)
    .option('--no-transaction', 'create one that runs outside a transaction, for CREATE INDEX CONCURRENTLY')
    .addHelpText('after', '\nExample:\n  inventory migrate create add-price')
    .action(async (name: string, { transaction }: { transaction: boolean }) => {
      const file = await createMigration(name, 'migrations', transaction)
      await print(file, file)
    })
}

function describeIncomplete({ name, appliedAt, invalidIndexes }: MigrationRecord): string {
  const advice =
    appliedAt === null
      ? 'Run "inventory migrate up" again.'
      : invalidIndexes.map((index) => `Rebuild it: REINDEX INDEX CONCURRENTLY ${index.name};`).join(' ')
  return `${name}: ${invalidIndexes.map(describeInvalidIndex).join('')}${advice}`
}

function explainKnown(error: unknown): never {
  if (error instanceof MigrationFailedError) {
    throw new CommandFailure(error.message, error.isPartial ? exitCodes.partlyDone : exitCodes.failed)
  }
  const isKnown = [
    RoleError,
    GrantError,
    UnknownMigrationError,
    MigrationFileError,
    MigrationOrderError,
    MigrationsRunningError,
  ].some((kind) => error instanceof kind)
  throw isKnown && error instanceof Error ? new CommandFailure(error.message) : error
}

function readCount(text: string): number {
  if (!/^[1-9]\d{0,5}$/.test(text)) throw new InvalidArgumentError('It must be a whole number from 1.')
  return Number(text)
}

function readName(text: string): string {
  if (!/^[a-z0-9]+(-[a-z0-9]+)*$/.test(text))
    throw new InvalidArgumentError('It must be words of a-z and 0-9 joined by hyphens.')
  return text
}
