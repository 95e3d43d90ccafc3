#!/usr/bin/env node
import { commandLine } from './cli/commands.ts'
import { withSchemaReason } from './cli/connection.ts'
import { reportFailure } from './cli/failure.ts'
import { surviveClosedOutput } from './cli/output.ts'
import { loadOperatorDatabase } from './config/config.ts'
import { readEnvironment } from './config/environment.ts'
import { ConfigurationError } from './config/errors.ts'
import { chooseHost } from './database/operator/choose-host.ts'
import { InterruptedError, ignoreInspectorSignal } from './process/signals.ts'

ignoreInspectorSignal()

/** The setting that the database address came from, for messages. */
let variable: string | undefined

/** The address of the database that the command uses, once it is known. */
let address: string | undefined

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

surviveClosedOutput(process.stdout, process.stderr)

try {
  await commandLine(databaseUrl, readEnvironment).parseAsync()
} catch (error) {
  const reason = address === undefined ? error : await withSchemaReason(error, address)
  process.exitCode = reportFailure(reason, variable)
  // Otherwise, unread output would keep the process running.
  if (error instanceof InterruptedError) process.exit()
}
