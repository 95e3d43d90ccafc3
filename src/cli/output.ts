import { once } from 'node:events'
import { pipeline } from 'node:stream/promises'
import { TextDecoder } from 'node:util'
import { printableText } from '../process/terminal.ts'
import { CommandFailure, exitCodes } from './failure.ts'

/** Writes lines to standard output, and resolves when the system has accepted them. Throws a CommandFailure. */
export function print(...lines: readonly string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(printableText(lines), (error) => {
      if (error) reject(outputFailure(error))
      else resolve()
    })
  })
}

/** Prints a value as JSON. */
export function printJson(value: unknown): Promise<void> {
  return print(...JSON.stringify(value, null, 2).split('\n'))
}

/** Prints rows below headings in aligned columns, for people and for tools such as awk. */
export function printTable(headings: readonly string[], rows: readonly (readonly string[])[]): Promise<void> {
  const widths = headings.map((_, column) =>
    [headings, ...rows].reduce((width, cells) => Math.max(width, cells[column]?.length ?? 0), 0),
  )
  const align = (cells: readonly string[]): string =>
    cells
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd()
  return print(align(headings), ...rows.map(align))
}

/** Formats a whole number with thousands separators. */
export function formatNumber(value: number): string {
  return value.toLocaleString('en-US', { maximumFractionDigits: 0 })
}

/** Makes lines that come in chunks printable. */
export async function* printableChunks(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const decoder = new TextDecoder()
  let rest = ''
  for await (const chunk of chunks) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n')
    rest = lines.pop() ?? ''
    yield Buffer.from(printableText(lines))
  }
}

/** Streams to standard output, with backpressure. Throws a CommandFailure, or the reason of the signal when it aborts. */
export async function writeOutput(chunks: AsyncIterable<Buffer>, signal: AbortSignal): Promise<void> {
  const failed = new Promise<never>((_, reject) => {
    process.stdout.once('error', (error) => reject(outputFailure(error)))
  })
  // After an abort, the pipeline would wait until its last write is read.
  const ends = [pipeline(chunks, process.stdout, { signal, end: false }), failed, once(signal, 'abort')]
  await Promise.race(ends).finally(() => signal.throwIfAborted())
}

/** Without a message if the other end closed the pipe, as `head` does after enough lines. */
function outputFailure(error: Error): CommandFailure {
  if ('code' in error && error.code === 'EPIPE') return new CommandFailure('', exitCodes.outputClosed)
  return new CommandFailure(
    `Standard output cannot be written: ${error.message}. What the command had changed before remains; a key that could not be shown was not created.`,
  )
}
