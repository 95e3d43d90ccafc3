import pg from 'pg'
import { parseAddress } from './address.ts'
import { askServer } from './session-server.ts'
import { askStandby, problemOf, type StandbyProblem, standbyErrorOf, standbyProblems } from './standby.ts'

/** How long each server may take to answer a command, in milliseconds. */
const LIMIT_MS = 5000

/** Whether lists can be read from the standby. */
export interface StandbyStatus {
  /** Host and port; of several, those of the first that can be used, else of the last one. */
  readonly address: string
  readonly problem: StandbyProblem | null
  /** What happened, in words; null where nothing did. */
  readonly reason: string | null
  /** How much WAL it has yet to replay, in bytes; null where that cannot be said. */
  readonly behindBytes: number | null
}

/**
 * Looks at the standby of a primary as the server does before it reads lists from there.
 *
 * @param primaryUrl names one host
 */
export async function standbyStatus(primaryUrl: string, standbyUrl: string): Promise<StandbyStatus> {
  const { identity, flushed } = await onClient(primaryUrl, async (client) => {
    const { identity } = await askServer(client, LIMIT_MS)
    if (identity === undefined) return { identity, flushed: null }
    const { rows } = await client.query<{ flushed: string }>(
      'SELECT pg_current_wal_flush_lsn()::text AS flushed',
    )
    return { identity, flushed: rows[0]?.flushed ?? null }
  })
  const [first, ...others] = parseAddress(standbyUrl).hosts
  const look = async ({ url, name: address }: typeof first): Promise<StandbyStatus> => {
    try {
      return await onClient(url, async (client) => {
        const problem = problemOf(await askStandby(client, LIMIT_MS), identity) ?? null
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
  let status = await look(first)
  for (const host of others) if (status.problem !== null) status = await look(host)
  return status
}

async function onClient<Result>(url: string, work: (client: pg.Client) => Promise<Result>): Promise<Result> {
  const client = new pg.Client({
    connectionString: url,
    application_name: 'petstore-inventory cli',
    connectionTimeoutMillis: LIMIT_MS,
    query_timeout: LIMIT_MS,
  })
  client.on('error', () => {})
  try {
    await client.connect()
    return await work(client)
  } finally {
    await client.end()
  }
}
