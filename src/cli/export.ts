import type { Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { Command } from 'commander'
import { inTransaction } from '../database/transaction.ts'
import { exportEntries } from '../inventory/transfer/export.ts'
import { printable } from '../process/printable.ts'
import { abortOnSignals } from '../process/signals.ts'
import { formatCount } from './format.ts'
import { STANDARD_STREAM } from './import-source.ts'
import { report, writeOutput } from './output.ts'
import { writeFileWhole } from './output-file.ts'

const NEWLINE = 10

/** Adds `inventory export`. */
export function addExportCommand(program: Command, databaseUrl: () => Promise<string>): void {
  program
    .command('export')
    .description('export a consistent snapshot of the whole inventory as CSV')
    .argument('[file]', 'the file to write; - for standard output', STANDARD_STREAM)
    .addHelpText('after', '\nExample:\n  inventory export stock.csv')
    .action(async (file: string) => {
      const url = await databaseUrl()
      const { signal } = abortOnSignals()
      if (file === STANDARD_STREAM) {
        await exportTo(process.stdout, url, signal)
      } else {
        const rows = await writeFileWhole(file, (stream) => exportTo(stream, url, signal))
        report(`${formatCount(rows, 'entry', 'entries')} written to ${printable(file)}`)
      }
    })
}

/** Writes the inventory, ends the stream unless it is standard output, and returns the number of entries. */
function exportTo(stream: Writable, url: string, signal: AbortSignal): Promise<number> {
  return inTransaction({ url, readOnly: true, signal }, async (transaction) => {
    // The first line is the header.
    let rows = -1
    async function* counted(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
      for await (const chunk of source) {
        for (let at = chunk.indexOf(NEWLINE); at !== -1; at = chunk.indexOf(NEWLINE, at + 1)) rows += 1
        yield chunk
      }
    }
    const pieces = counted(await exportEntries(transaction))
    if (stream === process.stdout) await writeOutput(pieces, signal)
    else await pipeline(pieces, stream, { signal })
    return rows
  })
}
