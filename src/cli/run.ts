import { CommanderError } from 'commander'
import { readEnvironment } from '../config/environment.ts'
import { loadOperatorDatabase } from '../config/load-config.ts'
import { OperatorError } from '../database/operator-error.ts'
import { StatementError } from '../database/statement-error.ts'
import { explain } from '../process/explain.ts'
import { report } from '../process/terminal.ts'
import { commandLine } from './command-line.ts'
import { CommandFailure, exitCodes, InterruptedError } from './failure.ts'

/** Runs a command, reports its failure on standard error, and sets the exit code of this process; an interruption exits. */
export async function runCommand(args: readonly string[]): Promise<void> {
  // A stream that fails must not crash the process; whoever writes to it still gets the error.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {})
  let setting: ReturnType<typeof loadOperatorDatabase>
  const databaseUrl = async (): Promise<string> => {
    setting = loadOperatorDatabase(readEnvironment())
    if (setting !== undefined) return setting.url
    const { runningDatabase } = await import('../local/local-setup.ts')
    const url = await runningDatabase()
    if (url !== undefined) return url
    throw new OperatorError(
      'DATABASE_URL must be set, unless "npm start" is running in this folder, and none is running',
    )
  }

  try {
    await commandLine(databaseUrl).parseAsync(args, { from: 'user' })
  } catch (error) {
    process.exitCode = reportFailure(error, setting?.variable)
    // Output that nobody reads would keep the process running.
    if (error instanceof InterruptedError) process.exit()
  }
}

/** Reports why a command failed, and returns the exit code. `variable` is the setting with the address of the database. */
function reportFailure(error: unknown, variable: string | undefined): number {
  // Commander has already printed the usage error, or the help that was asked for.
  if (error instanceof CommanderError) return error.exitCode === 0 ? exitCodes.done : exitCodes.wrongUsage
  const [message, ...details] = explain(error, variable)
  if (message) report(`inventory: ${message}`, ...details)
  if (error instanceof CommandFailure) return error.exitCode
  return error instanceof StatementError && error.outcome === 'unknown'
    ? exitCodes.outcomeUnknown
    : exitCodes.failed
}
