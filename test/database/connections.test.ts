import { PassThrough, type TransformCallback } from 'node:stream'
import t from 'tap'
import { openDatabase, requestLimits } from '../../src/database/pool.ts'
import { PrimaryServer } from '../../src/database/primary.ts'
import { testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { backend, backendOf, openPool } from '../support/pool.ts'
import { startRelay } from '../support/relay.ts'

t.test('a connection counts as idle between two statements, and as lost when it ends', async (t) => {
  const { owner, pool, lost } = await openPool(t)
  await pool.query(backend)
  const before = await backendOf(pool)
  t.match(pool.statistics(), { used: 0, idle: 1, waiting: 0, opened: 1 })
  await owner.query('SELECT pg_terminate_backend($1)', [before])
  await eventually('the lost connection', async () => lost.length > 0)
  t.match(pool.statistics(), { used: 0, idle: 0 })
  t.not(await backendOf(pool), before)
  t.equal(lost.length, 1)
})

/** Holds back what the database sends from `holds` on, until it ends the connection; then passes everything on at once. */
class UntilEnd extends PassThrough {
  holds = false
  readonly #held: Buffer[] = []

  get isHolding(): boolean {
    return this.#held.length > 0
  }

  override _transform(chunk: Buffer, encoding: BufferEncoding, done: TransformCallback): void {
    if (this.holds) this.#held.push(chunk)
    if (!this.isHolding) super._transform(chunk, encoding, done)
    else if (chunk.includes('57P01')) super._transform(Buffer.concat(this.#held.splice(0)), encoding, done)
    else done()
  }
}

t.test('a connection that PostgreSQL ends right after a response is not used again', async (t) => {
  const owner = await testDatabase(t)
  let responses = new UntilEnd()
  const relay = await startRelay(t, {
    target: () => new URL(owner.url),
    towardsClient: () => {
      responses = new UntilEnd()
      return responses
    },
  })
  const pool = openDatabase({
    url: relay.url,
    size: 1,
    limits: requestLimits,
    onConnectionLost: () => {},
  })
  t.teardown(() => pool.close())
  await pool.query(backend)
  const ended = await backendOf(pool)
  responses.holds = true
  const last = pool.query(backend)
  await eventually('the response', async () => responses.isHolding)
  await owner.query('SELECT pg_terminate_backend($1)', [ended])
  t.match(await last, [{ pid: ended }])
  t.not(await backendOf(pool), ended)
})

t.test('callers take turns when there are more of them than connections', async (t) => {
  const { pool } = await openPool(t)
  const rows = await Promise.all(
    Array.from({ length: 50 }, (_, n) =>
      pool.query<{ n: number }>('SELECT $1::integer AS n', [n]).then(([row]) => row?.n),
    ),
  )
  t.strictSame(
    rows,
    Array.from({ length: 50 }, (_, n) => n),
  )
})

t.test('a connection that is always in use is replaced at the end of its lifetime', async (t) => {
  const { pool } = await openPool(t, { lifetimeSeconds: 1 })
  const before = await backendOf(pool)
  const deadline = performance.now() + 30_000
  while ((await backendOf(pool)) === before) {
    if (performance.now() > deadline) throw new Error('Waited 30 s for another connection')
  }
})

t.test(
  'while the server is read-only, few new connections are opened, however many callers ask',
  async (t) => {
    const owner = await testDatabase(t)
    let opened = 0
    const relay = await startRelay(t, {
      target: () => new URL(owner.url),
      onConnection: () => opened++,
    })
    const url = `${relay.url}?options=-c%20default_transaction_read_only%3Don`
    const pool = openDatabase({
      url,
      server: new PrimaryServer({ onRenew: () => {}, onServer: () => {} }),
      size: 1,
      limits: requestLimits,
      onConnectionLost: () => {},
    })
    t.teardown(() => pool.close())
    for (let count = 0; count < 100; count++)
      await t.rejects(pool.query(backend), { cause: { message: /the server is read-only/ } })
    t.ok(opened < 50, `${opened} connections`)
  },
)

t.test('closing a pool closes its idle connection', async (t) => {
  const owner = await testDatabase(t)
  const pool = openDatabase({ url: owner.url, size: 1, limits: requestLimits, onConnectionLost: () => {} })
  await pool.query(backend)
  const kept = await backendOf(pool)
  await pool.close()
  await eventually('the end of the connection', async () => {
    const rows = await owner.query('SELECT FROM pg_stat_activity WHERE pid = $1', [kept])
    return rows.length === 0
  })
})

t.test('a connection whose settings did not take effect is refused, as are those of a pooler', async (t) => {
  // A pooler that ignores the options of the startup message leaves the parameter unset.
  const { pool } = await openPool(t, { settings: { 'inventory.session': '' } })
  await t.rejects(pool.query(backend), {
    cause: {
      message: 'the settings of the session did not take effect (ignore_startup_parameters in PgBouncer)',
    },
  })
})
