#!/usr/bin/env node
import { Command, CommanderError } from 'commander'
import { addCompletionCommand } from './cli/completion.ts'
import { addConfigCommand } from './cli/config.ts'
import { addExportCommand } from './cli/export.ts'
import { CommandFailure } from './cli/failure.ts'
import { addImportCommand } from './cli/import.ts'
import { addKeysCommands } from './cli/keys.ts'
import { addLowCommand } from './cli/low.ts'
import { addMigrateCommands } from './cli/migrate.ts'
import { OutputError, surviveClosedOutput } from './cli/output.ts'
import { addStatusCommand } from './cli/status.ts'
import { pointToHelp } from './cli/usage.ts'
import { ConfigurationError, loadOperatorDatabase, serverRoleOf } from './config/config.ts'
import { readEnvironment } from './config/environment.ts'
import { version } from './config/version.ts'
import { chooseHost } from './database/hosts.ts'
import { OutcomeUnknownError } from './database/transaction.ts'
import { LOCAL_DIRECTORY, runningDatabase } from './local/local-setup.ts'
import { exitCodeHelp, exitCodes } from './process/exit-codes.ts'
import { InterruptedError } from './process/interruption.ts'
import { ignoreInspectorSignal } from './process/shutdown.ts'
import { explain } from './process/start-up-errors.ts'

ignoreInspectorSignal()

const program = new Command('inventory')
  .description('The operators’ command line of the Petstore inventory service')
  .addHelpText(
    'after',
    '\nIt works on the database at OPERATOR_DATABASE_URL, else DATABASE_URL, which the environment or a file .env\nsets; without one, on the database that "npm start" runs in this folder.',
  )
  .addHelpText('after', '\nExample:\n  inventory keys create --name ops')
  .addHelpText('after', exitCodeHelp)
  .version(version, '--version', 'show the version of this program')
  .showSuggestionAfterError()
  .exitOverride()

/** The variable that names the database which a command works on. */
let variable: string | undefined

addKeysCommands(program, databaseUrl)
addImportCommand(program, databaseUrl)
addExportCommand(program, databaseUrl)
addStatusCommand(program, databaseUrl, () => serverRoleOf(readEnvironment()))
addLowCommand(program, databaseUrl)
addMigrateCommands(program, databaseUrl, () => readEnvironment()['NODE_ENV'] === 'production')
addConfigCommand(program, readEnvironment)
addCompletionCommand(program)
pointToHelp(program)

async function databaseUrl(): Promise<string> {
  const set = loadOperatorDatabase(readEnvironment())
  variable = set?.variable
  const url = set?.url ?? (await runningDatabase(LOCAL_DIRECTORY))
  if (url !== undefined) return chooseHost(url)
  throw new ConfigurationError([
    'DATABASE_URL must be set: it names the database to work on. ' +
      'Without it, the database that "npm start" runs in this folder is used; none runs now',
  ])
}

surviveClosedOutput(process.stdout, process.stderr)

try {
  await program.parseAsync()
} catch (error) {
  if (error instanceof CommanderError) {
    // It has said what is wrong, or has shown the help that was asked for.
    process.exitCode = error.exitCode === 0 ? exitCodes.done : exitCodes.wrongUsage
  } else if (error instanceof OutputError) {
    if (error.done !== undefined) console.error(`inventory: ${error.message}. It was done: ${error.done}`)
    else if (!error.isClosed) console.error(`inventory: ${error.message}`)
    process.exitCode = codeOfOutputError(error)
  } else if (error instanceof InterruptedError || error instanceof CommandFailure) {
    console.error(`inventory: ${error.message}`)
    process.exitCode = error.exitCode
  } else {
    console.error(`inventory: ${explain(error, variable)}`)
    process.exitCode = error instanceof OutcomeUnknownError ? exitCodes.outcomeUnknown : exitCodes.failed
  }
}

function codeOfOutputError({ isClosed, done }: OutputError): number {
  if (isClosed) return exitCodes.outputClosed
  return done === undefined ? exitCodes.failed : exitCodes.doneWithoutOutput
}
