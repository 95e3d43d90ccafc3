/** Conditions that some cases simulate: a distant database, or concurrent commits. */
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import type { Contender } from './cases.ts'

const COMMITS_PER_SECOND = 1000
const UPDATES_PER_SECOND = 100
const COMMIT_INTERVAL_MS = 10

/** A TCP proxy that simulates a distant database by adding latency. */
export interface DelayingProxy {
  /** Address of the database through the proxy. */
  readonly url: string
  stop(): Promise<void>
}

/**
 * Starts a proxy that delays the data of clients by the whole round trip, and does not delay the data of the database. Node's
 * timers have a resolution of one millisecond, so delays of 0.5 ms in each direction would add up to 2 ms.
 */
export async function startDelayingProxy(databaseUrl: string, roundTripMs: number): Promise<DelayingProxy> {
  const target = new URL(databaseUrl)
  const sockets = new Set<Socket>()
  const server = createServer({ noDelay: true }, (client) => {
    const upstream = connect({
      host: target.hostname,
      port: Number(target.port || 5432),
      noDelay: true,
    })
    for (const [socket, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(socket)
      socket.on('error', () => other.destroy())
      socket.on('close', () => {
        sockets.delete(socket)
        other.destroy()
      })
    }
    client.on('data', (piece) => setTimeout(() => upstream.write(piece), roundTripMs))
    upstream.pipe(client)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const closed = once(server, 'close')
  const address = server.address()
  if (typeof address !== 'object' || address === null)
    throw new Error('The operating system assigned no port')
  const url = new URL(databaseUrl)
  url.hostname = '127.0.0.1'
  url.port = String(address.port)
  return {
    url: url.href,
    async stop() {
      server.close()
      for (const socket of sockets) socket.destroy()
      await closed
    },
  }
}

/** Returns the contender, measured while transactions are committed in another database of the same server. */
export function withCommits(contender: Contender, otherDatabaseUrl: string): Contender {
  return {
    ...contender,
    async measure(given, seconds) {
      const commits = await startCommits(
        otherDatabaseUrl,
        COMMITS_PER_SECOND,
        () => 'PERFORM pg_current_xact_id()',
      )
      try {
        return await contender.measure(given, seconds)
      } finally {
        await commits.stop()
      }
    },
  }
}

/** Returns the contender, measured while entries are updated directly in the database. */
export function withUpdates(contender: Contender, databaseUrl: string): Contender {
  return {
    ...contender,
    async measure(given, seconds) {
      const updates = await startCommits(databaseUrl, UPDATES_PER_SECOND, () => {
        return `UPDATE inventory SET quantity = quantity + 1 WHERE pet_id = ${randomInt(1, given.entries + 1)}`
      })
      try {
        return await contender.measure(given, seconds)
      } finally {
        await updates.stop()
      }
    },
  }
}

/** Returns a DO block that commits each statement separately. It must run outside a transaction (PostgreSQL manual, DO). */
function commitsText(statements: readonly string[]): string {
  return `DO $$ BEGIN ${statements.map((statement) => `${statement}; COMMIT;`).join(' ')} END $$`
}

/**
 * Runs and commits PL/pgSQL statements at a steady rate, in commits per second, until `stop` is called. The commits do not
 * wait for the disk, whose speed is not measured here. `stop` rejects if the server reached less than 90 % of the rate.
 */
async function startCommits(
  url: string,
  rate: number,
  next: () => string,
): Promise<{ stop(): Promise<void> }> {
  const client = new pg.Client({ connectionString: url, options: '-c synchronous_commit=off' })
  await client.connect()
  const start = performance.now()
  let isRunning = true
  let count = 0
  const running = (async () => {
    while (isRunning) {
      const due = Math.floor(((performance.now() - start) / 1000) * rate)
      if (due > count) await client.query(commitsText(Array.from({ length: due - count }, next)))
      count = due
      await sleep(COMMIT_INTERVAL_MS)
    }
  })()
  return {
    async stop() {
      isRunning = false
      await running
      const perSecond = count / ((performance.now() - start) / 1000)
      await client.end()
      if (perSecond < 0.9 * rate)
        throw new Error(`only ${Math.round(perSecond)} commits per second were made during the lists`)
    },
  }
}
