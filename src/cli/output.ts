import { once } from 'node:events'
import type { Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { TextDecoder } from 'node:util'
import { printableLines } from '../process/printable.ts'

/** Standard output cannot be written. */
export class OutputError extends Error {
  override readonly name = 'OutputError'
  /** True if the other end closed the pipe, as `head` does after enough lines. */
  readonly isClosed: boolean
  /** What the command had already changed, for the operator; undefined if nothing. */
  readonly done: string | undefined

  constructor(cause: Error, done?: string) {
    super(`Standard output cannot be written: ${cause.message}`, { cause })
    this.isClosed = 'code' in cause && cause.code === 'EPIPE'
    this.done = done
  }
}

/** Keeps a failing stream from crashing the process; whoever writes to it still gets the error. */
export function surviveClosedOutput(...streams: Writable[]): void {
  for (const stream of streams) stream.on('error', () => {})
}

/** Writes a line to standard error, for people. */
export function report(line: string): void {
  console.error(printableLines(line))
}

/**
 * Writes a line to standard output, and resolves when the operating system has accepted it. `done` says what the command
 * has already changed, so that the error can report it.
 *
 * @throws {OutputError}
 */
export function print(line: string, done?: string): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(`${printableLines(line)}\n`, (error) => {
      if (error) reject(new OutputError(error, done))
      else resolve()
    })
  })
}

/**
 * Streams lines for people to standard output, as `writeOutput` does.
 *
 * @throws {OutputError}
 * @throws the reason of `signal` when it aborts
 */
export function writeLines(pieces: AsyncIterable<Buffer>, signal: AbortSignal): Promise<void> {
  return writeOutput(printablePieces(pieces), signal)
}

async function* printablePieces(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const decoder = new TextDecoder()
  for await (const piece of pieces) yield Buffer.from(printableLines(decoder.decode(piece, { stream: true })))
}

/**
 * Streams to standard output, with backpressure.
 *
 * @throws {OutputError}
 * @throws the reason of `signal` when it aborts
 */
export async function writeOutput(
  pieces: Iterable<Buffer> | AsyncIterable<Buffer>,
  signal: AbortSignal,
): Promise<void> {
  signal.throwIfAborted()
  const failed = new Promise<never>((_, reject) => {
    process.stdout.once('error', (error) => reject(new OutputError(error)))
  })
  // After an abort, the pipeline would wait until its last write is read.
  const ends = [pipeline(pieces, process.stdout, { signal, end: false }), failed, once(signal, 'abort')]
  await Promise.race(ends).finally(() => signal.throwIfAborted())
}
