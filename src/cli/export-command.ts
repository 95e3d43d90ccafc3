import type { Command } from 'commander'
import { exportEntries } from '../inventory/transfer/export.ts'
import { read } from './database.ts'
import { writeOutput } from './output.ts'

/** Adds `inventory export`. */
export function addExportCommand(program: Command, databaseUrl: () => Promise<string>): void {
  program
    .command('export')
    .description('write a consistent snapshot of the whole inventory as CSV to standard output')
    .addHelpText('after', '\nExample:\n  inventory export >new.csv && mv new.csv stock.csv')
    .action(async () => {
      await read(await databaseUrl(), async (transaction, signal) =>
        writeOutput(await exportEntries(transaction), signal),
      )
    })
}
