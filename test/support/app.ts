import type { OutgoingHttpHeaders } from 'node:http'
import { Writable } from 'node:stream'
import { pino } from 'pino'
import type { Test } from 'tap'
import { loadConfig } from '../../src/config/load-config.ts'
import { version } from '../../src/config/version.ts'
import type { AppOptions } from '../../src/http/app.ts'
import { type ServiceTimings, serviceTimings, startService as start } from '../../src/service.ts'
import type { Tracing } from '../../src/tracing/tracing.ts'
import { type Entries, testDatabase } from './database.ts'
import { callerOf, json } from './http.ts'
import { longLimits } from './limits.ts'
import { type Sample, samplesIn } from './metrics.ts'
import { apiKey } from './program.ts'

export { apiKey }

export type TestApp = Awaited<ReturnType<typeof startApp>>

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
  const stream = new Writable({
    write(chunk: Buffer, _encoding, done) {
      log.push(JSON.parse(chunk.toString()))
      done()
    },
  })
  const logger = pino({ base: null }, stream)
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
  const send = callerOf(port, { authorization: `Bearer ${apiKey}` })
  return {
    port,
    log,
    close,
    /** Sends a request with the key. */
    send,
    update: (petId: number | string, quantity: number, headers?: OutgoingHttpHeaders) =>
      send('PATCH', `/v1/inventory/${petId}`, json({ quantity }, headers)),
    /** The metrics of the service, without those of the process. */
    scrape: async (): Promise<Sample[]> => samplesIn(await service.metrics.scrape()),
  }
}

/** Starts the service as `startApp` does, over a database of the test's own with these entries. */
export async function startService(t: Test, entries: Entries = [], options: TestAppOptions = {}) {
  const database = await testDatabase(t, { entries })
  return { ...(await startApp(t, database.url, options)), database }
}
