import { createPool, type Pool } from '../database/pool.ts'
import type { TimeLimits } from '../database/time-limits.ts'
import { requestLimits } from '../database/time-limits.ts'

/** For counts of rows: those of many millions take longer than requests are allowed. */
export const countLimits: TimeLimits = { connect: 5000, lock: 5000, statement: 60_000, answer: 61_000 }

/** Runs `work` on a connection that is closed when it has ended, however it ends. */
export async function withDatabase<Result>(
  url: string,
  work: (database: Pool) => Promise<Result>,
  limits: TimeLimits = requestLimits,
): Promise<Result> {
  const database = createPool({ url, size: 1, limits, onConnectionLost: () => {} })
  try {
    return await work(database)
  } finally {
    await database.close()
  }
}
