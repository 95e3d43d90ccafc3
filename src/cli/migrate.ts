import { type Command, InvalidArgumentError } from 'commander'
import {
  createMigration,
  type MigrateOptions,
  migrate,
  UnknownMigrationError,
} from '../database/migrations.ts'
import { RoleError, type Roles } from '../database/privileges.ts'
import { CommandFailure } from './failure.ts'
import { OutputError, print } from './output.ts'

/** Adds `inventory migrate up|down|create`. */
export function addMigrateCommands(program: Command, databaseUrl: () => Promise<string>): void {
  const run = async (
    direction: MigrateOptions['direction'],
    count?: number,
    roles: Roles = {},
  ): Promise<void> => {
    // Written by the side: an output that fails must not end a migration in the middle.
    const lines: Promise<void>[] = []
    const ran = await migrate({
      url: await databaseUrl(),
      direction,
      roles,
      log: (line) => {
        const written = print(line)
        written.catch(() => {})
        lines.push(written)
      },
      ...(count === undefined ? {} : { count }),
    }).catch((error: unknown) => {
      const isKnown = error instanceof RoleError || error instanceof UnknownMigrationError
      throw isKnown ? new CommandFailure(error.message) : error
    })
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
    .description('apply all migrations that are pending; several at once wait for each other')
    .argument('[count]', 'apply only so many', readCount)
    .option('--server-role <role>', 'grant this role what the server needs, and nothing else')
    .option('--operator-role <role>', 'grant this role what the other commands need')
    .addHelpText('after', '\nExample:\n  inventory migrate up --server-role inventory_server')
    .action((count: number | undefined, options: { serverRole?: string; operatorRole?: string }) => {
      return run('up', count, { server: options.serverRole, operator: options.operatorRole })
    })

  migrations
    .command('down')
    .description('take back the newest migration')
    .argument('[count]', 'take back so many', readCount)
    .addHelpText('after', '\nExample:\n  inventory migrate down 1')
    .action((count?: number) => run('down', count))

  migrations
    .command('create')
    .description('write a new, empty migration into the folder migrations')
    .argument('<name>', 'what it does, for example add-price', readName)
    .addHelpText('after', '\nExample:\n  inventory migrate create add-price')
    .action(async (name: string) => {
      const file = await createMigration(name, 'migrations')
      await print(file, file)
    })
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
