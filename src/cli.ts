#!/usr/bin/env node
import { Command, InvalidArgumentError } from 'commander'
import { ConfigurationError, loadConfig } from './config.ts'
import { createMigration, type MigrateOptions, migrate } from './database/migrations.ts'
import { readEnvironment } from './environment.ts'
import { explain } from './explain.ts'

const program = new Command('inventory')
  .description('The operators’ command line of the Petstore inventory service')
  .showSuggestionAfterError()
  .addHelpText('after', '\nExit codes: 0 done, 1 failed, nothing changed.')

const migrations = program
  .command('migrate')
  .description('change the schema of the database at DATABASE_URL')
  .addHelpText('after', '\nExample:\n  inventory migrate up')

migrations
  .command('up')
  .description('apply all migrations that are pending; several at once wait for each other')
  .argument('[count]', 'apply only so many', readCount)
  .action((count?: number) => run('up', count))

migrations
  .command('down')
  .description('take back the newest migration')
  .argument('[count]', 'take back so many', readCount)
  .action((count?: number) => run('down', count))

migrations
  .command('create')
  .description('write a new, empty migration into the folder migrations')
  .argument('<name>', 'what it does, for example add-price', readName)
  .action(async (name: string) => console.log(await createMigration(name, 'migrations')))

async function run(direction: MigrateOptions['direction'], count?: number): Promise<void> {
  const { databaseUrl } = loadConfig(readEnvironment())
  if (databaseUrl === undefined)
    throw new ConfigurationError(['DATABASE_URL must be set: it names the database to change'])
  await migrate({
    url: databaseUrl,
    direction,
    log: (line) => console.log(line),
    ...(count === undefined ? {} : { count }),
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

try {
  await program.parseAsync()
} catch (error) {
  console.error(`inventory: ${explain(error)}`)
  process.exitCode = 1
}
