import { setTimeout } from 'node:timers/promises'
import { type Command, InvalidArgumentError } from 'commander'
import { to as copyTo } from 'pg-copy-streams'
import { isInt64Text } from '../contract/int64.ts'
import { connect, operatorClient, outageOf, statementRunner } from '../database/operator/operator-client.ts'
import { inTransaction } from '../database/operator/transaction.ts'
import { onlyRow } from '../database/protocol/only-row.ts'
import {
  type ChangeFilter,
  type ChangeFormat,
  copyChanges,
  type Snapshots,
  TABLE_HEADING,
} from '../inventory/history/changes.ts'
import { abortOnSignals } from '../process/signals.ts'
import { readLifetime } from './duration.ts'
import { addRecordingCommands } from './history-recording.ts'
import { print, writeOutput } from './output.ts'

/** Interval between two looks for new changes. */
const POLL_MS = 1000

interface HistoryOptions {
  readonly since?: number
  readonly by?: string
  readonly json?: true
  readonly csv?: true
  readonly follow?: true
}

/** Adds `inventory history`. */
export function addHistoryCommands(program: Command, databaseUrl: () => Promise<string>): void {
  const history = program
    .command('history')
    .description('list the changes of the stock, newest first: who changed what, and when (UTC)')
    .argument('[petId]', 'list only the changes of this pet', readPetId)
    .option('--since <duration>', 'list only the changes of this time, such as 24h', readLifetime)
    .option('--by <name>', 'list only the changes by this API key or, without a key, database role')
    .option('--json', 'print one JSON object per line')
    .option('--csv', 'print CSV')
    .option('--follow', 'keep printing changes as they are committed, oldest first')
    .addHelpText('after', '\nExample:\n  inventory history 17 --since 24h')
    .action(async (petId: string | undefined, { since, by, json, csv, follow }: HistoryOptions) => {
      if (json && csv) history.error("error: option '--json' cannot be used with option '--csv'")
      const format = json ? 'json' : csv ? 'csv' : 'table'
      const filter = { petId, since, by }
      const url = await databaseUrl()
      const { signal } = abortOnSignals()
      if (follow) return followChanges(url, filter, format, signal)
      await inTransaction({ url, readOnly: true, signal }, async (transaction) => {
        const lines = transaction.copyOut(copyChanges(filter, format))
        if (format === 'table') await print(TABLE_HEADING)
        await writeOutput(lines, signal)
      })
    })
  addRecordingCommands(history, databaseUrl)
}

/**
 * Prints each change once, however late its transaction commits, until the signal aborts or the connection is lost. On another
 * connection, after a crash of PostgreSQL, the ids of transactions may be used again.
 */
async function followChanges(
  url: string,
  filter: ChangeFilter,
  format: ChangeFormat,
  signal: AbortSignal,
): Promise<void> {
  const client = operatorClient(url)
  const { query } = statementRunner(client)
  signal.addEventListener('abort', () => client.connection.stream.destroy(), { once: true })
  const readSnapshot = async (): Promise<string> =>
    onlyRow(await query<{ snapshot: string }>('SELECT pg_current_snapshot()::text AS snapshot')).snapshot
  const printChanges = (since: number | undefined, snapshots: Snapshots): Promise<void> => {
    const lines = client.query(copyTo(copyChanges({ ...filter, since }, format, snapshots)))
    return writeOutput(lines, signal)
  }
  try {
    await connect(client)
    let former = await readSnapshot()
    if (format === 'table') await print(TABLE_HEADING)
    await printChanges(filter.since ?? 0, { latest: former })
    for (;;) {
      await setTimeout(POLL_MS, undefined, { signal })
      const latest = await readSnapshot()
      await printChanges(undefined, { former, latest })
      former = latest
    }
  } catch (error) {
    signal.throwIfAborted()
    throw outageOf(error, undefined)
  } finally {
    await client.end()
  }
}

function readPetId(text: string): string {
  if (!isInt64Text(text)) throw new InvalidArgumentError('It must be a petId, such as 17.')
  return text
}
