import { setTimeout } from 'node:timers/promises'
import { type Command, InvalidArgumentError, Option } from 'commander'
import { isInt64Text } from '../contract/int64.ts'
import { hasCause } from '../database/error-meaning.ts'
import { onlyRow } from '../database/only-row.ts'
import { inTransaction, type Transaction } from '../database/transaction.ts'
import { type ChangeList, copyChanges, TABLE_HEADING } from '../inventory/history/changes.ts'
import { isRecording, startRecording, stopRecording } from '../inventory/history/recording.ts'
import { historySize, pruneHistory } from '../inventory/history/retention.ts'
import { MAX_AGE_MS } from '../inventory/updates/table-state.ts'
import { abortOnSignals } from '../process/signals.ts'
import { countLimits, withDatabase } from './connection.ts'
import { readLifetime } from './duration.ts'
import { CommandFailure } from './failure.ts'
import { formatCount, formatNumber } from './format.ts'
import { print, writeOutput } from './output.ts'

/** Interval between two looks for new changes. */
const POLL_MS = 1000

/** How long a server may need until its updates name their callers. */
const SERVER_NOTICE_MS = MAX_AGE_MS + 1000

interface HistoryOptions extends Pick<ChangeList, 'since' | 'by' | 'follow'> {
  readonly json?: true
  readonly csv?: true
}

/** Adds `inventory history` and `inventory history on|off|prune|status`. */
export function addHistoryCommands(program: Command, databaseUrl: () => Promise<string>): void {
  const change = async (work: (transaction: Transaction) => Promise<void>): Promise<void> => {
    const url = await databaseUrl()
    await inTransaction({ url, readOnly: false, ...abortOnSignals() }, work).catch(explain)
  }

  const history = program
    .command('history')
    .description('list the changes of the stock, newest first: who changed what, and when (UTC)')
    .argument('[petId]', 'list only the changes of this pet', readPetId)
    .option('--since <duration>', 'list only the changes of this time, such as 24h', readLifetime)
    .option('--by <name>', 'list only the changes by this API key or, without a key, database role')
    .option('--json', 'print one JSON object per line')
    .addOption(new Option('--csv', 'print CSV').conflicts('json'))
    .option('--follow', 'keep printing changes as they are committed, oldest first')
    .addHelpText('after', '\nExample:\n  inventory history 17 --since 24h')
    .action(async (petId: string | undefined, { json, csv, ...options }: HistoryOptions) => {
      const format = json ? 'json' : csv ? 'csv' : 'table'
      const url = await databaseUrl()
      const { signal } = abortOnSignals()
      await inTransaction({ url, readOnly: true, signal }, async (transaction) => {
        if (format === 'table') await print(TABLE_HEADING)
        await printChanges(transaction, { petId, format, ...options }, signal)
      })
    })

  history
    .command('on')
    .description('record every change of the stock from now on; run it as the owner of the tables')
    .addHelpText('after', '\nExample:\n  inventory history on')
    .action(async () => {
      await change(async (transaction) => {
        // Fails with a message if the migration is pending.
        await historySize(transaction)
        await startRecording(transaction)
      })
      await setTimeout(SERVER_NOTICE_MS)
      await print('The history is on.', 'the history is on')
    })

  history
    .command('off')
    .description('stop recording, and keep what is recorded; run it as the owner of the tables')
    .addHelpText('after', '\nExample:\n  inventory history off')
    .action(async () => {
      await change(stopRecording)
      await print('The history is off.', 'the history is off')
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
      const pruned = await withDatabase(url, (database) => pruneHistory(database, keep), countLimits).catch(
        explain,
      )
      const report = `${formatCount(pruned, 'change', 'changes')} deleted`
      await print(report, report)
    })

  history
    .command('status')
    .description('show whether changes are recorded, and the size of the history')
    .option('--json', 'print a JSON object')
    .addHelpText('after', '\nExample:\n  inventory history status')
    .action(async (_options: object, command: Command) => {
      const status = await withDatabase(await databaseUrl(), async (database) => ({
        recording: await isRecording(database),
        ...(await historySize(database)),
      }))
      // The option is also one of "inventory history", which takes it.
      if (command.optsWithGlobals()['json']) return print(JSON.stringify(status, null, 2))
      const { recording, changes, bytes, oldest } = status
      await print(`Recording  ${recording ? 'on' : 'off'}
Changes    about ${formatNumber(changes)}, the oldest ${oldest === null ? '-' : `of ${oldest.toISOString()}`}
Size       ${formatNumber(Math.ceil(bytes / 1e6))} MB`)
    })
}

/** Prints the changes of the list. To follow, prints each later one once, however late its transaction commits, until an error. */
async function printChanges(transaction: Transaction, list: ChangeList, signal: AbortSignal): Promise<void> {
  await writeOutput(transaction.copyOut(copyChanges(list)), signal)
  while (list.follow) {
    const snapshot = 'SELECT pg_current_snapshot()::text AS former'
    const { former } = onlyRow(await transaction.query<{ former: string }>(snapshot))
    // The next transaction has a new snapshot, but the same connection: after a crash, PostgreSQL may use transaction ids again.
    await transaction.query('COMMIT AND CHAIN')
    await setTimeout(POLL_MS, undefined, { signal })
    await writeOutput(transaction.copyOut(copyChanges(list, former)), signal)
  }
}

function explain(error: unknown): never {
  if (hasCause(error, 'locked')) {
    throw new CommandFailure(
      'A transaction has locked the inventory for longer than a second, for example an import or a backup; nothing was changed. Run it again when that has ended.',
    )
  }
  if (hasCause(error, 'forbidden')) {
    throw new CommandFailure(
      'The role does not own the tables; nothing was changed. Run it as their owner; with docker compose, run "docker compose run --rm --no-deps migrate inventory history …".',
    )
  }
  // Citus has no code for its refusal of triggers.
  if (error instanceof Error && hasCause(error, 'internal'))
    throw new CommandFailure(`The history cannot be changed: ${error.message}.`)
  throw error
}

function readPetId(text: string): string {
  if (!isInt64Text(text)) throw new InvalidArgumentError('It must be a petId, such as 17.')
  return text
}
