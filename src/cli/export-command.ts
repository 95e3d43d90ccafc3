import type { Command } from 'commander'
import { inTransaction } from '../database/admin/transaction.ts'
import { exportEntries } from '../inventory/transfer/export.ts'
import { commandOptions } from './database.ts'
import { writeOutput } from './output.ts'

/** Adds `inventory export`. */
export function addExportCommand(program: Command, databaseUrl: () => Promise<string>): void {
  program
    .command('export')
    .description('write a consistent snapshot of the whole inventory as CSV to standard output')
    .addHelpText('after', '\nExample:\n  inventory export >new.csv && mv new.csv stock.csv')
    .action(async () => {
      const url = await databaseUrl()
      const options = commandOptions()
      await inTransaction({ url, readOnly: true, ...options }, async (transaction) =>
        writeOutput(await exportEntries(transaction), options.signal),
      )
    })
}
