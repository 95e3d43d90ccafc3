import { type Command, Option } from 'commander'
import { inTransaction } from '../database/transaction.ts'
import { MAX_QUANTITY, type PetStatus, petStatuses } from '../inventory/entry/schemas.ts'
import { findLowEntries } from '../inventory/reports/low-entries.ts'
import { exitCodes } from '../process/exit-codes.ts'
import { abortOnSignals } from '../process/signals.ts'
import { formatTable } from './format.ts'
import { integerFrom } from './matching.ts'
import { writeOutput } from './output.ts'

interface LowOptions {
  readonly below?: number
  readonly status?: PetStatus
  readonly json?: true
}

/** Adds `inventory low`. */
export function addLowCommand(program: Command, databaseUrl: () => Promise<string>): void {
  program
    .command('low')
    .description('list entries with a quantity below a limit; exit with code 7 if there are any')
    // Not requiredOption, which would report a missing limit before an unknown option such as "--belo".
    .option('--below <quantity>', 'list entries below this quantity (required)', integerFrom(1, MAX_QUANTITY))
    .addOption(new Option('--status <status>', 'list only entries with this status').choices(petStatuses))
    .option('--json', 'print a JSON array')
    .addHelpText('after', '\nExample:\n  inventory low --below 5 --status available')
    .action(async ({ below, status, json }: LowOptions, command: Command) => {
      if (below === undefined) command.error("error: required option '--below <quantity>' not specified")
      const url = await databaseUrl()
      const { signal } = abortOnSignals()
      const entries = await inTransaction({ url, readOnly: true, signal }, (transaction) =>
        findLowEntries(transaction, below, status),
      )
      const rows = entries.map(({ petId, quantity, status }) => [petId, String(quantity), status])
      const text = json
        ? `[${entries.map((entry) => entry.json).join(',\n')}]`
        : formatTable(['PET ID', 'QUANTITY', 'STATUS'], rows)
      if (json || entries.length > 0) await writeOutput([Buffer.from(`${text}\n`)], signal)
      else console.error(`No entry has a quantity below ${below}.`)
      if (entries.length > 0) process.exitCode = exitCodes.low
    })
}
