/** Time limits in milliseconds. */
export interface TimeLimits {
  /** For getting a connection, idle or new. */
  readonly connect: number
  /** For a lock, for example on a row that an open transaction has updated. */
  readonly lock: number
  /** For a statement, measured by PostgreSQL. */
  readonly statement: number
  /** For a statement, from the wait for a connection to its response, or to the next row, measured by this process. */
  readonly answer: number
}

/**
 * `connect` and `statement` together do not exceed `answer`, so that PostgreSQL cancels a statement and reports it, and this process
 * gives up only if the server no longer responds. With the time that updates wait, it is less than the 10 seconds after which callers
 * give up. The limit for locks is short, because one statement serves several callers: retries wait longer.
 */
export const requestLimits: TimeLimits = { connect: 2000, lock: 250, statement: 5000, answer: 7000 }

/** For lists: a large table may take minutes, as long as data keeps arriving. */
export const listLimits: TimeLimits = { connect: 2000, lock: 2000, statement: 120_000, answer: 7000 }

/** For readiness checks, whose callers give up after a second or two. */
export const probeLimits: TimeLimits = { connect: 1000, lock: 500, statement: 1000, answer: 2000 }
