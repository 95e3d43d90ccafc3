import { setTimeout } from 'node:timers/promises'
import type { Command } from 'commander'
import { inTransaction } from '../database/admin/transaction.ts'
import type { StatementRunner } from '../database/statement.ts'
import { requestLimits } from '../database/time-limits.ts'
import { type ChangeFilter, copyChanges, TABLE_HEADING } from '../inventory/history/changes.ts'
import { isRecording, startRecording, stopRecording } from '../inventory/history/recording.ts'
import { pruneHistory } from '../inventory/history/retention.ts'
import { MAX_AGE_MS } from '../inventory/updates/table-state.ts'
import { report } from '../process/terminal.ts'
import { matching, readLifetime } from './arguments.ts'
import { change, read } from './database.ts'
import { exitCodes } from './failure.ts'
import { abortOnSignals } from './interruption.ts'
import { formatNumber, print, printableChunks, writeOutput } from './output.ts'
import { withProgress } from './progress.ts'

/** How long statements without callers may be under way: until servers notice, and until the last one has ended. */
const UNNAMED_MS = MAX_AGE_MS + requestLimits.answer

/** Adds `inventory history` and `inventory history on|off|prune`. */
export function addHistoryCommands(program: Command, databaseUrl: () => Promise<string>): void {
  const history = program
    .command('history')
    .description('list who changed the stock and when, and turn recording on and off')
    .addHelpText('after', '\nExample:\n  inventory history 17 --since 24h')

  // A command without others below it, because only there a negative petId is no option.
  history
    .command('list', { isDefault: true })
    .description('list changes, newest first (UTC); "list" may be left out')
    .argument('[petId]', 'list only the changes of this pet', matching(/^-?\d{1,19}$/, 'a petId, such as 17'))
    .option('--since <duration>', 'list only the changes made within this time, such as 24h', readLifetime)
    .option('--by <name>', 'list only the changes by this API key or database role')
    .option('--json', 'print one JSON object per line')
    .addHelpText('after', '\nExample:\n  inventory history list -17 --since 24h')
    .action(async (petId: string | undefined, { json, ...filter }: ChangeFilter & { json?: true }) => {
      await read(await databaseUrl(), async (transaction, signal) => {
        const isOn = await isRecording(transaction)
        if (!json) await print(TABLE_HEADING)
        const changes = transaction.copyOut(copyChanges({ ...filter, petId }, json === true))
        await writeOutput(printableChunks(changes), signal)
        if (isOn) return
        process.exitCode = exitCodes.refused
        report('inventory: the history is off, so later changes are missing; run "inventory history on"')
      })
    })

  history
    .command('on')
    .description('record every change to the stock from now on; run it as the owner of the tables')
    .addHelpText('after', '\nExample:\n  inventory history on')
    .action(async () => {
      await change(await databaseUrl(), startRecording)
      report(`inventory: recording; in ${UNNAMED_MS / 1000} seconds, every update names its key`)
      await setTimeout(UNNAMED_MS)
      await print('The history is on.')
    })

  history
    .command('off')
    .description('stop recording, and keep what is recorded; run it as the owner of the tables')
    .addHelpText('after', '\nExample:\n  inventory history off')
    .action(async () => {
      await change(await databaseUrl(), stopRecording)
      await print('The history is off.')
    })

  history
    .command('prune')
    .description('delete old changes in small transactions, oldest first; run it as the owner of the tables')
    .requiredOption('--keep <duration>', 'keep changes younger than this, such as 90d', readLifetime)
    .addHelpText('after', '\nExample:\n  inventory history prune --keep 90d')
    .action(async ({ keep }: { keep: string }) => {
      const url = await databaseUrl()
      // Without `onCommit`: after one chunk, others follow.
      const { signal, onWait } = abortOnSignals('the other changes remain')
      const database: StatementRunner = {
        query: (text, values) =>
          inTransaction({ url, signal, onWait }, (transaction) => transaction.query(text, values)),
      }
      let deleted = 0
      const countDeleted = () => `${formatNumber(deleted)} ${deleted === 1 ? 'change' : 'changes'} deleted`
      try {
        await withProgress(countDeleted, async () => {
          for await (const count of pruneHistory(database, keep)) deleted += count
        })
      } finally {
        await print(countDeleted())
      }
    })
}
