import { once } from 'node:events'
import { pipeline } from 'node:stream/promises'
import { TextDecoder } from 'node:util'
import { exitCodes } from '../process/exit-codes.ts'
import { printableLines } from '../process/printable.ts'
import { CommandFailure } from './failure.ts'

/** Writes a line to standard output, and resolves when the system has accepted it. Throws a CommandFailure. */
export function print(line: string): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(`${printableLines(line)}\n`, (error) => {
      if (error) reject(outputFailure(error))
      else resolve()
    })
  })
}

/** Escapes a text that comes in pieces, as `printableLines` does. */
export async function* printablePieces(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const decoder = new TextDecoder()
  for await (const piece of pieces) yield Buffer.from(printableLines(decoder.decode(piece, { stream: true })))
}

/** Streams to standard output, with backpressure. Throws a CommandFailure, or the reason of the signal when it aborts. */
export async function writeOutput(pieces: AsyncIterable<Buffer>, signal: AbortSignal): Promise<void> {
  const failed = new Promise<never>((_, reject) => {
    process.stdout.once('error', (error) => reject(outputFailure(error)))
  })
  // After an abort, the pipeline would wait until its last write is read.
  const ends = [pipeline(pieces, process.stdout, { signal, end: false }), failed, once(signal, 'abort')]
  await Promise.race(ends).finally(() => signal.throwIfAborted())
}

/** Without a message if the other end closed the pipe, as `head` does after enough lines. */
function outputFailure(error: Error): CommandFailure {
  if ('code' in error && error.code === 'EPIPE') return new CommandFailure('', exitCodes.outputClosed)
  return new CommandFailure(
    `Standard output cannot be written: ${error.message}. What the command had changed before remains; a key that could not be shown was not created.`,
  )
}
