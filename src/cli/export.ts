import type { Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { Command } from 'commander'
import { inTransaction } from '../database/transaction.ts'
import { countEntries, exportEntries, type FileFormat, lockEntries } from '../inventory/transfer/export.ts'
import { abortOnSignals } from '../process/signals.ts'
import { formatOf, formatOption, STANDARD_STREAM } from './file-format.ts'
import { writeOutput } from './output.ts'
import { writeFileWhole } from './output-file.ts'
import { formatCount, reportProgress } from './progress.ts'

const NEWLINE = 10

/** Adds `inventory export`. */
export function addExportCommand(program: Command, databaseUrl: () => Promise<string>): void {
  program
    .command('export')
    .description('export a consistent snapshot of the whole inventory')
    .argument('[file]', 'CSV or NDJSON; - for standard output', STANDARD_STREAM)
    .addOption(formatOption())
    .addHelpText('after', '\nExample:\n  inventory export stock.csv')
    .action(async (file: string, options: { format?: FileFormat }) => {
      const format = options.format ?? formatOf(file)
      const url = await databaseUrl()
      const { signal } = abortOnSignals()
      if (file === STANDARD_STREAM) {
        await exportTo(process.stdout, url, format, signal)
      } else {
        const rows = await writeFileWhole(file, (stream) => exportTo(stream, url, format, signal))
        console.error(`${formatCount(rows, 'entry', 'entries')} written to ${file}`)
      }
    })
}

/** Writes the inventory, ends the stream unless it is standard output, and returns the number of entries. */
function exportTo(stream: Writable, url: string, format: FileFormat, signal: AbortSignal): Promise<number> {
  return inTransaction({ url, readOnly: true, signal }, async (transaction) => {
    await lockEntries(transaction)
    const progress = reportProgress('writing', await countEntries(transaction))
    let rows = format === 'csv' ? -1 : 0
    async function* watched(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
      for await (const chunk of source) {
        for (let at = chunk.indexOf(NEWLINE); at !== -1; at = chunk.indexOf(NEWLINE, at + 1)) rows += 1
        progress(rows, rows)
        yield chunk
      }
    }
    const pieces = watched(exportEntries(transaction, format))
    if (stream === process.stdout) await writeOutput(pieces, signal)
    else await pipeline(pieces, stream, { signal })
    return rows
  })
}
