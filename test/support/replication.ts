import type { Test } from 'tap'
import { eventually } from './eventually.ts'
import { type OwnServer, startOwnPair } from './own-server.ts'
import { setSynchronousStandby } from './synchronous-standby.ts'

/**
 * A primary with one entry for each pet and 100 of others, so that lists are read by their changes, and a standby of it by
 * streaming replication.
 */
export interface ReplicatedPair {
  readonly primary: OwnServer
  readonly standby: OwnServer
}

/** Starts both; they go away with the test. */
export async function startPair(t: Test, pets: readonly number[]): Promise<ReplicatedPair> {
  const pair = await startOwnPair(t, { wal_keep_size: '256MB' })
  await pair.primary.query(
    `INSERT INTO inventory SELECT unnest(ARRAY[${pets.join()}]), 0, 'available';
     INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(1000001, 1000100) AS n`,
  )
  return pair
}

/** Has the primary answer only once the standby has each commit, so that a crash loses none. */
export async function waitForStandby(primary: OwnServer): Promise<void> {
  await setSynchronousStandby(primary, '*')
  await eventually('the standby to be synchronous', async () => {
    const rows = await primary.query("SELECT FROM pg_stat_replication WHERE sync_state = 'sync'")
    return rows.length > 0
  })
}
