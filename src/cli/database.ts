import { watchingLocks } from '../database/admin/lock-waits.ts'
import { onlyRow } from '../database/only-row.ts'
import { createPool, type Pool } from '../database/pool.ts'
import { printable } from '../process/printable.ts'
import { abortOnSignals } from '../process/signals.ts'
import { report } from './failure.ts'

/** Counts of many millions of rows take longer than requests are allowed. */
const limits = { connect: 5000, lock: 5000, statement: 60_000, answer: 61_000 }

/** Runs `work` on a connection that is closed when it has ended, however it ends. Reports the locks that it waits for. */
export async function withDatabase<Result>(
  url: string,
  work: (database: Pool) => Promise<Result>,
): Promise<Result> {
  const database = createPool({ url, size: 1, limits, onConnectionLost: () => {} })
  try {
    const { pid } = onlyRow(await database.query<{ pid: number }>('SELECT pg_backend_pid() AS pid'))
    return await watchingLocks(url, pid, onWait, () => work(database))
  } finally {
    await database.close()
  }
}

/** Returns the options of a command's transaction: a signal rolls it back, and the locks that it waits for are reported. */
export function commandOptions() {
  return { ...abortOnSignals(), onWait }
}

function onWait(description: string): void {
  report(`inventory: ${printable(description)}`)
}
