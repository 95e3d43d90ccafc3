import type { Command } from 'commander'
import { exportEntries } from '../inventory/transfer/export.ts'
import { read } from './database.ts'
import { formatNumber, writeOutput } from './output.ts'
import { withProgress } from './progress.ts'

/** Adds `inventory export`. */
export function addExportCommand(program: Command, databaseUrl: () => Promise<string>): void {
  program
    .command('export')
    .description('write a consistent snapshot of the whole inventory as CSV to standard output')
    .addHelpText('after', '\nExample:\n  inventory export >new.csv && mv new.csv stock.csv')
    .action(async () => {
      await read(await databaseUrl(), async (transaction, signal) => {
        let bytes = 0
        async function* countBytes(): AsyncGenerator<Buffer> {
          for await (const chunk of await exportEntries(transaction)) {
            bytes += chunk.length
            yield chunk
          }
        }
        const write = () => writeOutput(countBytes(), signal)
        const describe = () => `Exporting the inventory: ${formatNumber(bytes / 1e6)} MB`
        await (process.stdout.isTTY ? write() : withProgress(describe, write))
      })
    })
}
