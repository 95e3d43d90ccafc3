import { type Database, openDatabase, requestLimits, type TimeLimits } from '../database/pool.ts'

/** For counts of rows: those of many millions take longer than requests are allowed. */
export const countLimits: TimeLimits = { connect: 5000, lock: 5000, statement: 60_000, answer: 61_000 }

/** Runs `work` on a connection that is closed when it has ended, however it ends. */
export async function withDatabase<Result>(
  url: string,
  work: (database: Database) => Promise<Result>,
  limits: TimeLimits = requestLimits,
): Promise<Result> {
  const database = openDatabase({ url, size: 1, limits, onConnectionLost: () => {} })
  try {
    return await work(database)
  } finally {
    await database.close()
  }
}
