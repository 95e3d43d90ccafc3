import { setTimeout } from 'node:timers/promises'
import type { Command } from 'commander'
import { hasCause } from '../database/errors/sqlstate.ts'
import { inTransaction, type Transaction } from '../database/operator/transaction.ts'
import { isRecording, startRecording, stopRecording } from '../inventory/history/recording.ts'
import { historySize, pruneHistory } from '../inventory/history/retention.ts'
import { isDistributed, MAX_AGE_MS } from '../inventory/updates/table-state.ts'
import { abortOnSignals } from '../process/signals.ts'
import { countLimits, withDatabase } from './connection.ts'
import { readLifetime } from './duration.ts'
import { CommandFailure } from './failure.ts'
import { print } from './output.ts'
import { formatCount, formatNumber } from './progress.ts'

/** How long the server may need until its updates name their callers. */
const SERVER_NOTICE_MS = MAX_AGE_MS + 1000

/** Adds `inventory history on|off|prune|status`. */
export function addRecordingCommands(history: Command, databaseUrl: () => Promise<string>): void {
  const change = async (work: (transaction: Transaction) => Promise<void>): Promise<void> => {
    const url = await databaseUrl()
    await inTransaction({ url, readOnly: false, ...abortOnSignals() }, work).catch(explain)
  }

  history
    .command('on')
    .description('record every change of the stock from now on; run it as the owner of the tables')
    .addHelpText('after', '\nExample:\n  inventory history on')
    .action(async () => {
      await change(async (transaction) => {
        // Fails with a message if the migration is pending.
        await historySize(transaction)
        if (await isDistributed(transaction)) {
          throw new CommandFailure(
            'The history is not supported on a table that Citus distributes; nothing was changed.',
          )
        }
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
      const prune = withDatabase(
        await databaseUrl(),
        (database) => pruneHistory(database, keep),
        countLimits,
      ).catch(explain)
      const report = `${formatCount(await prune, 'change', 'changes')} deleted`
      await print(report, report)
    })

  history
    .command('status')
    .description('show whether changes are recorded, and the size of the history')
    .option('--json', 'print a JSON object')
    .addHelpText('after', '\nExample:\n  inventory history status')
    .action(async (_options: object, command: Command) => {
      // The option is also one of "inventory history", which takes it.
      const { json } = command.optsWithGlobals<{ json?: true }>()
      const status = await withDatabase(await databaseUrl(), async (database) => ({
        recording: await isRecording(database),
        ...(await historySize(database)),
      }))
      const { recording, changes, bytes, oldest } = status
      const lines = [
        `Recording  ${recording ? 'on' : 'off'}`,
        `Changes    about ${formatNumber(changes)}, the oldest ${oldest === null ? '-' : `of ${oldest.toISOString()}`}`,
        `Size       ${formatNumber(Math.ceil(bytes / 1e6))} MB`,
      ]
      await print(json ? JSON.stringify(status, null, 2) : lines.join('\n'))
    })
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
  throw error
}
