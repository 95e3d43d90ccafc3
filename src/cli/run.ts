import { readEnvironment } from '../config/environment.ts'
import { loadOperatorDatabase } from '../config/load-config.ts'
import { OperatorError } from '../database/operator-error.ts'
import { commandLine } from './command-line.ts'
import { reportFailure } from './failure.ts'
import { InterruptedError } from './interruption.ts'

/** Runs a command, reports its failure on standard error, and sets the exit code of this process; an interruption exits. */
export async function runCommand(args: readonly string[]): Promise<void> {
  // A stream that fails must not crash the process; whoever writes to it still gets the error.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {})
  /** The setting that the database address came from, for messages. */
  let variable: string | undefined

  const databaseUrl = async (): Promise<string> => {
    const setting = loadOperatorDatabase(readEnvironment())
    variable = setting?.variable
    const url =
      setting?.url ??
      (await import('../local/local-setup.ts').then(({ runningDatabase }) => runningDatabase()))
    if (url !== undefined) return url
    throw new OperatorError(
      'DATABASE_URL must be set, unless "npm start" is running in this folder, and none is running',
    )
  }

  try {
    await commandLine(databaseUrl).parseAsync(args, { from: 'user' })
  } catch (error) {
    process.exitCode = reportFailure(error, variable)
    // Output that nobody reads would keep the process running.
    if (error instanceof InterruptedError) process.exit()
  }
}
