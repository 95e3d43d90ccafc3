import { setTimeout } from 'node:timers/promises'
import pg from 'pg'
import type { Contender } from './contender.ts'

const COMMITS_PER_SECOND = 1000
const INTERVAL_MS = 10

/** The same contender, measured while another database of the same server gets commits. */
export function withCommits(contender: Contender, otherDatabaseUrl: string): Contender {
  return {
    ...contender,
    async measure(given, seconds) {
      const commits = await startCommits(otherDatabaseUrl)
      try {
        return await contender.measure(given, seconds)
      } finally {
        await commits.stop()
      }
    },
  }
}

/**
 * Commits at a steady rate until it is stopped. The commits do not wait for the disk, whose speed is not measured here.
 * `stop` rejects if the server did not keep up.
 */
async function startCommits(url: string): Promise<{ stop(): Promise<void> }> {
  const client = new pg.Client({ connectionString: url, options: '-c synchronous_commit=off' })
  await client.connect()
  const start = performance.now()
  let isRunning = true
  let count = 0
  const running = (async () => {
    while (isRunning) {
      const due = Math.floor(((performance.now() - start) / 1000) * COMMITS_PER_SECOND)
      const commits = Array.from({ length: due - count }, () => client.query('SELECT pg_current_xact_id()'))
      count = due
      await Promise.all(commits)
      await setTimeout(INTERVAL_MS)
    }
  })()
  return {
    async stop() {
      isRunning = false
      await running
      const perSecond = count / ((performance.now() - start) / 1000)
      await client.end()
      if (perSecond < 0.9 * COMMITS_PER_SECOND)
        throw new Error(`only ${Math.round(perSecond)} commits per second were made during the lists`)
    },
  }
}
