import { listLimits, probeLimits, requestLimits } from '../../src/database/time-limits.ts'

/**
 * Time limits for the database that a busy machine does not reach. A statement still gives up a locked row as soon as in
 * production.
 */
export const longLimits = {
  requests: { ...requestLimits, connect: 60_000, statement: 60_000, answer: 121_000 },
  lists: { ...listLimits, connect: 60_000, lock: 60_000, answer: 121_000 },
  probe: { ...probeLimits, connect: 60_000, statement: 60_000, answer: 121_000 },
}
