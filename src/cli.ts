#!/usr/bin/env node
import { Command } from 'commander'
import { addCompletionCommand } from './cli/completion.ts'
import { addConfigCommand } from './cli/config.ts'
import { withSchemaReason } from './cli/connection.ts'
import { addExportCommand } from './cli/export.ts'
import { reportFailure } from './cli/failure.ts'
import { addImportCommand } from './cli/import.ts'
import { addKeysCommands } from './cli/keys.ts'
import { addLowCommand } from './cli/low.ts'
import { addMigrateCommands } from './cli/migrate.ts'
import { surviveClosedOutput } from './cli/output.ts'
import { addStatusCommand } from './cli/status.ts'
import { loadOperatorDatabase, loadReadDatabase, serverRoleOf } from './config/config.ts'
import { readEnvironment } from './config/environment.ts'
import { ConfigurationError } from './config/errors.ts'
import { version } from './config/version.ts'
import { chooseHost } from './database/hosts.ts'
import { exitCodeHelp } from './process/exit-codes.ts'
import { InterruptedError, ignoreInspectorSignal } from './process/signals.ts'

ignoreInspectorSignal()

const program = new Command('inventory')
  .description('manage the API keys, stock data and database schema of the Petstore inventory service')
  .addHelpText(
    'after',
    '\nUses the database at OPERATOR_DATABASE_URL, or else DATABASE_URL, from the environment or a file .env;\nif neither is set, the one that "npm start" is running in this folder.',
  )
  .addHelpText('after', '\nExample:\n  inventory keys create --name ops')
  .addHelpText('after', exitCodeHelp)
  .version(version, '--version', 'print the version')
  .showSuggestionAfterError()
  .exitOverride()

/** The setting that the database address came from, for messages. */
let variable: string | undefined

/** The address of the database that the command uses, once it is known. */
let address: string | undefined

addKeysCommands(program, databaseUrl)
addImportCommand(program, databaseUrl)
addExportCommand(program, databaseUrl)
addStatusCommand(
  program,
  databaseUrl,
  () => serverRoleOf(readEnvironment()),
  () => loadReadDatabase(readEnvironment()),
)
addLowCommand(program, databaseUrl)
addMigrateCommands(program, databaseUrl, () => readEnvironment()['NODE_ENV'] === 'production')
addConfigCommand(program, readEnvironment)
addCompletionCommand(program)
pointToHelp(program)

async function databaseUrl(): Promise<string> {
  const set = loadOperatorDatabase(readEnvironment())
  variable = set?.variable
  const url = set?.url ?? (await findLocalDatabase())
  if (url !== undefined) {
    address = await chooseHost(url)
    return address
  }
  throw new ConfigurationError([
    'DATABASE_URL must be set to the database to use. ' +
      'Without it, commands use the database that "npm start" is running in this folder, and none is running',
  ])
}

/** Returns the address of the database that a server without one has set up in this folder, if that server is running. */
async function findLocalDatabase(): Promise<string | undefined> {
  const { LOCAL_DIRECTORY, runningDatabase } = await import('./local/local-setup.ts')
  return runningDatabase(LOCAL_DIRECTORY)
}

/** Makes every usage error end with a pointer to the help of its command. */
function pointToHelp(command: Command, parents: readonly string[] = []): void {
  const names = [...parents, command.name()]
  command.showHelpAfterError(`Run "${names.join(' ')} --help" for usage.`)
  for (const child of command.commands) pointToHelp(child, names)
}

surviveClosedOutput(process.stdout, process.stderr)

try {
  await program.parseAsync()
} catch (error) {
  const reason = address === undefined ? error : await withSchemaReason(error, address)
  process.exitCode = reportFailure(reason, variable)
  // Otherwise, unread output would keep the process running.
  if (error instanceof InterruptedError) process.exit()
}
