import type pg from 'pg'
import { parseAddress } from './address.ts'
import { operatorClient } from './operator-client.ts'
import { askServer } from './session-server.ts'
import { askStandby, problemOf } from './standby-identity.ts'
import { type StandbyProblem, standbyErrorOf, standbyProblems } from './standby-problem.ts'

/** Time limit for each connection attempt and each statement, in milliseconds. */
const RESPONSE_TIMEOUT_MS = 5000

/** The result of a check whether lists can be read from the standby. */
export interface StandbyStatus {
  /** Host and port. If the address names several hosts: the first that can be used, or the last if none can. */
  readonly address: string
  /** Why the standby cannot be read, or null if it can. */
  readonly problem: StandbyProblem | null
  /** The problem as text for the operator, or null if there is none. */
  readonly reason: string | null
  /** WAL that the standby has not replayed yet, in bytes, or null if the standby cannot be read. */
  readonly behindBytes: number | null
}

/**
 * Verifies the standby of a primary in the same way as the service does for each connection to it.
 *
 * @param primaryUrl an address with a single host
 */
export async function standbyStatus(primaryUrl: string, standbyUrl: string): Promise<StandbyStatus> {
  const { identity, isStandby, flushed } = await onClient(primaryUrl, async (client) => {
    const { identity, isStandby } = await askServer(client, RESPONSE_TIMEOUT_MS)
    if (identity === undefined) return { identity, isStandby, flushed: null }
    const { rows } = await client.query<{ flushed: string }>(
      'SELECT pg_current_wal_flush_lsn()::text AS flushed',
    )
    return { identity, isStandby, flushed: rows[0]?.flushed ?? null }
  })
  const [first, ...others] = parseAddress(standbyUrl).hosts
  if (isStandby) {
    const reason = 'the command line is connected to a standby, and only the primary can verify another one'
    return { address: first.name, problem: 'unverified', reason, behindBytes: null }
  }
  const check = async ({ url, name: address }: typeof first): Promise<StandbyStatus> => {
    try {
      return await onClient(url, async (client) => {
        const problem = problemOf(await askStandby(client, RESPONSE_TIMEOUT_MS), identity) ?? null
        if (problem !== null) return { address, problem, reason: standbyProblems[problem], behindBytes: null }
        const { rows } = await client.query<{ behind: string }>(
          'SELECT greatest(0, pg_wal_lsn_diff($1, pg_last_wal_replay_lsn()))::text AS behind',
          [flushed],
        )
        return { address, problem, reason: null, behindBytes: Number(rows[0]?.behind) }
      })
    } catch (error) {
      const { problem, message, cause } = standbyErrorOf(error)
      const reason = cause instanceof Error ? `${message}: ${cause.message}` : message
      return { address, problem, reason, behindBytes: null }
    }
  }
  let status = await check(first)
  for (const host of others) if (status.problem !== null) status = await check(host)
  return status
}

async function onClient<Result>(url: string, work: (client: pg.Client) => Promise<Result>): Promise<Result> {
  const client = operatorClient(url, {
    connectionTimeoutMillis: RESPONSE_TIMEOUT_MS,
    query_timeout: RESPONSE_TIMEOUT_MS,
  })
  try {
    await client.connect()
    return await work(client)
  } finally {
    await client.end()
  }
}
