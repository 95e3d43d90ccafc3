import { loadOperatorDatabase } from '../config/config.ts'
import { readEnvironment } from '../config/environment.ts'
import { ConfigurationError } from '../config/errors.ts'
import { parseAddress } from '../database/address.ts'
import { printable } from '../process/printable.ts'
import { InterruptedError, ignoreInspectorSignal } from '../process/signals.ts'
import { commandLine } from './commands.ts'
import { withSchemaReason } from './connection.ts'
import { reportFailure } from './failure.ts'
import { report, surviveClosedOutput } from './output.ts'

/** Runs the command that the arguments of this process name. */
export async function runProgram(args: readonly string[]): Promise<void> {
  ignoreInspectorSignal()
  surviveClosedOutput(process.stdout, process.stderr)
  await runCommand(args)
}

/**
 * Runs the command that the arguments name, in the environment of this process. Reports a failure on standard error. Sets the
 * exit code of this process; an interruption exits.
 *
 * @param args without the names of Node and the program
 */
export async function runCommand(args: readonly string[]): Promise<void> {
  /** The setting that the database address came from, for messages. */
  let variable: string | undefined
  /** The address of the database that the command uses, once it is known. */
  let address: string | undefined

  const databaseUrl = async (): Promise<string> => {
    const set = loadOperatorDatabase(readEnvironment())
    variable = set?.variable
    for (const warning of set?.warnings ?? []) report(`inventory: ${printable(warning)}`)
    const url = set ? set.url : await findLocalDatabase()
    if (url !== undefined) {
      address = parseAddress(url).url
      return address
    }
    throw new ConfigurationError([
      'DATABASE_URL must be set to the database to use. ' +
        'Without it, commands use the database that "npm start" is running in this folder, and none is running',
    ])
  }

  try {
    await commandLine(databaseUrl, readEnvironment).parseAsync(args, { from: 'user' })
  } catch (error) {
    const reason = address === undefined ? error : await withSchemaReason(error, address)
    process.exitCode = reportFailure(reason, variable)
    // Otherwise, unread output would keep the process running.
    if (error instanceof InterruptedError) process.exit()
  }
}

async function findLocalDatabase(): Promise<string | undefined> {
  const { runningDatabase } = await import('../local/local-setup.ts')
  return runningDatabase()
}
