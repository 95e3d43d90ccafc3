import { randomUUID } from 'node:crypto'
import { createWriteStream } from 'node:fs'
import { open, realpath, rename, rm, stat } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { Command } from 'commander'
import { inTransaction } from '../database/transaction.ts'
import { exportEntries } from '../inventory/transfer/export.ts'
import { abortOnSignals } from '../process/signals.ts'
import { STANDARD_STREAM } from './import-source.ts'
import { writeOutput } from './output.ts'

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
      await inTransaction({ url, readOnly: true, signal }, async (transaction) => {
        const read = (): Promise<Readable> => exportEntries(transaction)
        await (file === STANDARD_STREAM ? writeOutput(await read(), signal) : writeFile(file, read, signal))
      })
    })
}

/** Writes a file that appears under its name when it is complete; until then, an existing file stays. */
async function writeFile(file: string, read: () => Promise<Readable>, signal: AbortSignal): Promise<void> {
  const found = await stat(file).catch(() => undefined)
  // Renaming a file over something like /dev/null or a named pipe would replace it.
  if (found !== undefined && !found.isFile())
    return pipeline(await read(), createWriteStream(file), { signal })
  const target = found === undefined ? file : await realpath(file)
  const unfinished = `${target}.${randomUUID()}`
  // Opened before the copy begins: a stream that fails while it opens its file could create it after it was removed.
  const output = await open(unfinished, 'wx', found?.mode)
  try {
    await pipeline(await read(), output.createWriteStream({ flush: true }), { signal })
    await rename(unfinished, target)
  } catch (error) {
    await output.close()
    await rm(unfinished, { force: true })
    throw error
  }
}
