import { setTimeout } from 'node:timers/promises'
import { type Command, InvalidArgumentError, Option } from 'commander'
import { isInt64Text } from '../contract/int64.ts'
import type { Database } from '../database/database.ts'
import { hasCause } from '../database/error-meaning.ts'
import { causeOf } from '../database/errors.ts'
import { requestLimits } from '../database/pool-options.ts'
import { inTransaction, type Transaction } from '../database/transaction.ts'
import { type ChangeList, copyChanges, TABLE_HEADING } from '../inventory/history/changes.ts'
import { startRecording, stopRecording } from '../inventory/history/recording.ts'
import { historyState, pruneHistory } from '../inventory/history/retention.ts'
import { MAX_AGE_MS } from '../inventory/updates/table-state.ts'
import { printable } from '../process/printable.ts'
import { abortOnSignals, InterruptedError } from '../process/signals.ts'
import { readLifetime } from './arguments.ts'
import { countLimits, withDatabase } from './connection.ts'
import { CommandFailure } from './failure.ts'
import { formatCount, formatNumber } from './format.ts'
import { print, writeLines } from './output.ts'

/** How long a statement without callers may be under way: servers send the last one when they notice, and it takes this long. */
const UNNAMED_MS = MAX_AGE_MS + requestLimits.answer

interface HistoryOptions extends Pick<ChangeList, 'since' | 'by'> {
  readonly json?: true
  readonly csv?: true
}

/** Adds `inventory history` and `inventory history on|off|prune|status`. */
export function addHistoryCommands(program: Command, databaseUrl: () => Promise<string>): void {
  const change = async (work: (transaction: Transaction) => Promise<void>): Promise<void> => {
    const url = await databaseUrl()
    await inTransaction({ url, readOnly: false, ...abortOnSignals() }, work).catch((error: unknown) => {
      throw failureOf(error, 'nothing was changed')
    })
  }

  const history = program
    .command('history')
    .description('list the changes of the stock, newest first: who changed what, and when (UTC)')
    .argument('[petId]', 'list only the changes of this pet', readPetId)
    .option('--since <duration>', 'list only the changes of this time, such as 24h', readLifetime)
    .option('--by <name>', 'list only the changes by this API key or database role')
    .option('--json', 'print one JSON object per line')
    .addOption(new Option('--csv', 'print CSV').conflicts('json'))
    .addHelpText('after', '\nExample:\n  inventory history 17 --since 24h')
    .action(async (petId: string | undefined, { json, csv, ...options }: HistoryOptions) => {
      const format = json ? 'json' : csv ? 'csv' : 'table'
      const url = await databaseUrl()
      const { signal } = abortOnSignals()
      await inTransaction({ url, readOnly: true, signal }, async (transaction) => {
        if (format === 'table') await print(TABLE_HEADING)
        await writeLines(transaction.copyOut(copyChanges({ petId, format, ...options })), signal)
      })
    })

  history
    .command('on')
    .description('record every change of the stock from now on; run it as the owner of the tables')
    .addHelpText('after', '\nExample:\n  inventory history on')
    .action(async () => {
      await change(async (transaction) => {
        // Fails with a message if the migration is pending.
        await historyState(transaction, false)
        await startRecording(transaction)
      })
      await setTimeout(UNNAMED_MS)
      await print('The history is on.')
    })

  history
    .command('off')
    .description('stop recording, and keep what is recorded; run it as the owner of the tables')
    .addHelpText('after', '\nExample:\n  inventory history off')
    .action(async () => {
      await change(stopRecording)
      await print('The history is off.')
    })

  history
    .command('prune')
    .description('delete old changes in small transactions, oldest first; run it as the owner of the tables')
    // Not requiredOption, which would report a missing duration before an unknown option such as "--kep".
    .option('--keep <duration>', 'keep the changes of this time, such as 90d (required)', readLifetime)
    .addHelpText('after', '\nExample:\n  inventory history prune --keep 90d')
    .action(async ({ keep }: { keep?: number }, command: Command) => {
      if (keep === undefined) command.error("error: required option '--keep <duration>' not specified")
      const url = await databaseUrl()
      const { signal } = abortOnSignals()
      let deleted = 0
      const report = (): string => `${formatCount(deleted, 'change', 'changes')} deleted`
      const prune = async (database: Database): Promise<void> => {
        for await (const count of pruneHistory(database, keep)) {
          deleted += count
          signal.throwIfAborted()
        }
      }
      await withDatabase(url, prune, countLimits).catch((error: unknown) => {
        const failure = failureOf(error, report())
        // A chunk whose outcome is unknown is not among them.
        if (failure === error) console.error(`inventory: at least ${report()}`)
        throw failure
      })
      await print(report())
    })

  history
    .command('status')
    .description('show whether changes are recorded, and the size of the history')
    .option('--json', 'print a JSON object')
    .addHelpText('after', '\nExample:\n  inventory history status')
    .action(async (_options: object, command: Command) => {
      const status = await withDatabase(
        await databaseUrl(),
        (database) => historyState(database, true),
        countLimits,
      )
      // The option is also one of "inventory history", which takes it.
      if (command.optsWithGlobals()['json']) return print(JSON.stringify(status, null, 2))
      const { recording, changes, bytes, oldest } = status
      await print(`Recording  ${recording ? 'on' : 'off'}
Changes    ${formatNumber(changes)}, the oldest ${oldest === null ? '-' : `of ${oldest}`}
Size       ${formatNumber(Math.ceil(bytes / 1e6))} MB`)
    })
}

/** Returns the failure to report for an error, with what the command has done before. */
function failureOf(error: unknown, done: string): unknown {
  if (error instanceof InterruptedError) return new CommandFailure(`interrupted; ${done}`, error.exitCode)
  if (hasCause(error, 'locked')) {
    return new CommandFailure(
      `A transaction has locked the tables for too long, for example an import or a backup; ${done}. Run it again when that has ended.`,
    )
  }
  if (hasCause(error, 'forbidden')) {
    return new CommandFailure(
      `The role does not own the tables; ${done}. Run it as their owner; with docker compose, run "docker compose run --rm --no-deps migrate inventory history …".`,
    )
  }
  // Citus has no code for its refusal of triggers.
  const cause = causeOf(error)
  if (cause instanceof Error && hasCause(cause, 'internal'))
    return new CommandFailure(`The history cannot be changed: ${printable(cause.message)}; ${done}.`)
  return error
}

function readPetId(text: string): string {
  if (!isInt64Text(text)) throw new InvalidArgumentError('It must be a petId, such as 17.')
  return text
}
