import type { Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'

/** Standard output does not take what is written to it. */
export class OutputError extends Error {
  override readonly name = 'OutputError'
  /** True where its reader has gone, as `head` does when it has seen enough. */
  readonly isClosed: boolean
  /** What the command has done before, in the words that could not be written. */
  readonly done: string | undefined
  override readonly cause: Error

  constructor(cause: Error, done?: string) {
    super(`Standard output cannot be written: ${cause.message}`)
    this.cause = cause
    this.isClosed = 'code' in cause && cause.code === 'EPIPE'
    this.done = done
  }

  /** The same error of a command that has changed something. */
  after(done: string): OutputError {
    return new OutputError(this.cause, done)
  }
}

/** Keeps a stream that cannot be written from ending the process: what writes to it learns of it, or goes on. */
export function surviveClosedOutput(...streams: Writable[]): void {
  for (const stream of streams) stream.on('error', () => {})
}

/**
 * Writes a line to standard output, and resolves when the system has it. `done` says what the command has changed
 * before, for the operator to learn it where the line cannot be written.
 *
 * @throws {OutputError}
 */
export function print(line: string, done?: string): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(`${line}\n`, (error) => {
      if (error) reject(new OutputError(error, done))
      else resolve()
    })
  })
}

/**
 * Writes pieces to standard output as fast as it takes them.
 *
 * @throws {OutputError}
 */
export async function writeOutput(pieces: AsyncIterable<Buffer>, signal: AbortSignal): Promise<void> {
  // Standard output does not remember its error.
  let failure: Error | undefined
  const remember = (error: Error): void => {
    failure = error
  }
  process.stdout.once('error', remember)
  try {
    await pipeline(pieces, process.stdout, { signal, end: false })
  } catch (error) {
    throw failure !== undefined && error === failure ? new OutputError(failure) : error
  } finally {
    process.stdout.off('error', remember)
  }
}
