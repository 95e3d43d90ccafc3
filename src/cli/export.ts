import type { Readable } from 'node:stream'
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
      const exportTo = (write: (csv: Readable) => Promise<void>): Promise<void> =>
        inTransaction({ url, readOnly: true, signal }, async (transaction) =>
          write(await exportEntries(transaction)),
        )
      if (file === STANDARD_STREAM) return exportTo((csv) => writeOutput(csv, signal))
      // The first line is the header.
      let rows = -1
      await writeFileWhole(file, (stream) =>
        exportTo((csv) => {
          csv.on('data', (chunk: Buffer) => {
            for (let at = chunk.indexOf(NEWLINE); at !== -1; at = chunk.indexOf(NEWLINE, at + 1)) rows += 1
          })
          return pipeline(csv, stream, { signal })
        }),
      )
      report(`${formatCount(rows, 'entry', 'entries')} written to ${printable(file)}`)
    })
}
