import { type Command, InvalidArgumentError, Option } from 'commander'
import { inTransaction } from '../database/transaction.ts'
import { MAX_QUANTITY, type PetStatus, petStatuses } from '../inventory/schemas.ts'
import { findLowEntries, type LowEntry } from '../inventory/transfer/bulk.ts'
import { exitCodes } from '../process/exit-codes.ts'
import { untilInterrupted } from '../process/interruption.ts'
import { print } from './output.ts'
import { formatTable } from './table.ts'

/** How many entries are turned into one piece of output. */
const BATCH = 1000

interface LowOptions {
  readonly below?: number
  readonly status?: PetStatus
  readonly json?: true
}

/** Adds `inventory low`. */
export function addLowCommand(program: Command, databaseUrl: () => Promise<string>): void {
  program
    .command('low')
    .description('list the entries with a quantity below a limit; exits with 7 if there are any')
    // Not by requiredOption: that would complain of a missing limit before it complains of "--belo".
    .option('--below <quantity>', 'the limit (mandatory)', readLimit)
    .addOption(new Option('--status <status>', 'only entries with this status').choices(petStatuses))
    .option('--json', 'as a JSON array')
    .addHelpText('after', '\nExample:\n  inventory low --below 5 --status available')
    .action(async ({ below, status, json }: LowOptions, command: Command) => {
      if (below === undefined) command.error("error: required option '--below <quantity>' not specified")
      const { signal } = untilInterrupted()
      const entries = await inTransaction(
        { url: await databaseUrl(), readOnly: true, signal },
        (transaction) => findLowEntries(transaction, below, status),
      )
      if (json) await printJson(entries)
      else if (entries.length === 0) console.error(`No entry has a quantity below ${below}.`)
      else {
        const rows = entries.map(({ petId, quantity, status }) => [petId, String(quantity), status])
        await print(formatTable(['PET ID', 'QUANTITY', 'STATUS'], rows))
      }
      if (entries.length > 0) process.exitCode = exitCodes.low
    })
}

/** Prints a JSON array, an entry a line. */
async function printJson(entries: readonly LowEntry[]): Promise<void> {
  const lines = entries.map(({ json }) => json)
  if (lines.length === 0) return print('[]')
  for (let start = 0; start < lines.length; start += BATCH) {
    const isLast = start + BATCH >= lines.length
    const text = lines.slice(start, start + BATCH).join(',\n')
    await print(`${start === 0 ? '[' : ''}${text}${isLast ? ']' : ','}`)
  }
}

function readLimit(text: string): number {
  const limit = /^\d{1,10}$/.test(text) ? Number(text) : 0
  if (limit < 1 || limit > MAX_QUANTITY)
    throw new InvalidArgumentError(`It must be a whole number from 1 to ${MAX_QUANTITY}.`)
  return limit
}
