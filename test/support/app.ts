import type { OutgoingHttpHeaders } from 'node:http'
import { pino } from 'pino'
import type { Test } from 'tap'
import { loadConfig } from '../../src/config/load-config.ts'
import { version } from '../../src/config/version.ts'
import { listLimits, probeLimits, requestLimits } from '../../src/database/time-limits.ts'
import { type AppOptions, appTimeouts } from '../../src/http/app.ts'
import { type ServiceTimings, serviceTimings, startService as start } from '../../src/service.ts'
import type { Tracing } from '../../src/tracing/tracing.ts'
import { type Entries, testDatabase } from './database.ts'
import { type Answer, createSender, json } from './http.ts'
import { parseSamples, total } from './metrics.ts'
import { apiKey } from './program.ts'

/** Ten minutes: however busy a machine is, only what hangs reaches it. */
const LONG_MS = 600_000

const long = { connect: LONG_MS, statement: LONG_MS, answer: 2 * LONG_MS }

/** The time limits of tests. A statement still gives up a locked row as soon as in production. */
export const longLimits = {
  requests: { ...requestLimits, ...long },
  lists: { ...listLimits, ...long, lock: LONG_MS },
  probe: { ...probeLimits, ...long },
  app: {
    arrivalMs: LONG_MS,
    stallMs: LONG_MS,
    // No load balancer has to notice that the service stops.
    drainMs: 0,
    closeGraceMs: 500,
    closeMs: LONG_MS,
    updates: { ...appTimeouts.updates, wait: LONG_MS, slow: LONG_MS },
  },
}

/** With as much time for locks: nothing but the test ends a wait. */
export const endlessLimits = { requests: { ...longLimits.requests, lock: LONG_MS } }

/** For an update that cannot be served: twice as long as in production, so that a busy machine serves the others meanwhile. */
export const shortWaits = {
  app: { ...longLimits.app, updates: { ...appTimeouts.updates, wait: 2 * appTimeouts.updates.wait } },
}

export { apiKey }

export interface TestAppOptions {
  /** Replaces options of the HTTP side that production would set. */
  readonly app?: Partial<AppOptions>
  /** Replaces the long limits, for a test whose point is a limit. */
  readonly timings?: Partial<ServiceTimings>
  /** Environment variables that are added to, or replace, those of the database, the port and the key. */
  readonly env?: Readonly<Record<string, string>>
  readonly tracing?: Tracing
}

/** Starts the service in this process on a free port, configured and wired as in production, and keeps its log. */
export async function startApp(
  t: Test,
  databaseUrl: string,
  { app = {}, timings = {}, env = {}, tracing }: TestAppOptions = {},
) {
  /** The log so far, a parsed line each. */
  const log: Record<string, unknown>[] = []
  const logger = pino({ base: null }, { write: (line) => log.push(JSON.parse(line)) })
  const config = loadConfig({ DATABASE_URL: databaseUrl, PORT: '0', API_KEYS: `tests:${apiKey}`, ...env })
  const options = { ...config, version, databaseUrl, tracing }
  const service = await start(options, { ...serviceTimings, ...longLimits, ...timings }, logger, app)
  let closed: Promise<void> | undefined
  const close = (): Promise<void> => {
    closed ??= service.close()
    return closed
  }
  t.teardown(close)
  const port = Number(new URL(service.address).port)
  const send = createSender(port, { authorization: `Bearer ${apiKey}` })
  const update = (petId: number | string, quantity: number, headers?: OutgoingHttpHeaders): Promise<Answer> =>
    send('PATCH', `/v1/inventory/${petId}`, json({ quantity }, headers))
  /** The metrics of the service, without those of the process. */
  const scrape = async () => parseSamples(await service.metrics.scrape())
  return {
    port,
    log,
    close,
    /** Sends a request with the key. */
    send,
    update,
    scrape,
    /** The value of a metric, or the sum of those with these labels. */
    metric: async (name: string, labels?: Readonly<Record<string, string>>): Promise<number> =>
      total(await scrape(), name, labels),
    /** Updates the pets from 1 to `count`, or from another one on, at once. */
    updateAll: (count: number, quantity: number, first = 1): Promise<Answer[]> =>
      Promise.all(Array.from({ length: count }, (_, index) => update(first + index, quantity))),
  }
}

/** Starts the service as `startApp` does, over a database of the test's own with these entries. */
export async function startService(t: Test, entries: Entries = [], options: TestAppOptions = {}) {
  const database = await testDatabase(t, { entries })
  return { ...(await startApp(t, database.url, options)), database }
}
