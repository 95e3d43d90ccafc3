import { createServer, type Socket } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { inTransaction } from '../../src/database/admin/transaction.ts'
import { PrimaryServer } from '../../src/database/primary.ts'
import { requestLimits } from '../../src/database/time-limits.ts'
import { longLimits, startApp } from '../support/app.ts'
import { testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { isError } from '../support/http.ts'
import { backend, openPool } from '../support/pool.ts'
import { listen } from '../support/ports.ts'
import { countingFilter, startRelay } from '../support/relay.ts'
import { trigger } from '../support/triggers.ts'

t.test('a connection whose settings did not take effect is refused, as are those of a pooler', async (t) => {
  // A pooler that ignores the options of the startup message leaves the parameter unset.
  const { pool } = await openPool(t, { settings: { 'inventory.session': '' } })
  const message = 'the settings of the session did not take effect (ignore_startup_parameters in PgBouncer)'
  await t.rejects(pool.query(backend), { cause: { message } })
})

const values = { name: 'values', text: 'SELECT $1::bigint + 1 AS next, $2::text AS word, true AS yes' }

t.test('values arrive by their types, the first time and afterward', async (t) => {
  const { pool } = await openPool(t)
  for (let round = 0; round < 3; round++) {
    const rows = await pool.query(values, [9_007_199_254_740_992n, null])
    t.strictSame(rows, [{ next: 9_007_199_254_740_993n, word: null, yes: true }])
  }
  t.strictSame(await pool.query(values, ['1', 'é']), [{ next: 2n, word: 'é', yes: true }])
  for (let round = 0; round < 2; round++) {
    t.strictSame(await pool.query({ name: 'none', text: 'SELECT 1 AS one WHERE false' }), [])
    t.strictSame(await pool.query({ name: 'nothing', text: 'SET LOCAL work_mem = 64' }), [])
    const many = { name: 'many', text: 'SELECT unnest($1::text[]) AS letter' }
    t.strictSame(await pool.query(many, ['{a,NULL}']), [{ letter: 'a' }, { letter: null }])
  }
})

t.test('a statement with a name is parsed and described once for each connection', async (t) => {
  const { url } = await testDatabase(t)
  const descriptions = countingFilter('length\0')
  const relay = await startRelay(t, url, { towardsClient: descriptions.filter })
  const { pool } = await openPool(t, { url: relay.url })
  const lengths = { name: 'lengths', text: 'SELECT cardinality($1::text[]) AS length' }
  for (const array of ['{a}', '{a,b}', '{}']) await pool.query(lengths, [array])
  t.equal(descriptions.count, 1, 'a description names the columns')
  t.strictSame(await pool.query('SELECT name FROM pg_prepared_statements'), [{ name: 'lengths' }])
})

t.test('after a statement that is rejected, the connection is used again', async (t) => {
  const { owner, pool, lost } = await openPool(t)
  const insert = { name: 'insert', text: 'INSERT INTO later VALUES ($1) RETURNING n' }
  await t.rejects(pool.query(insert, [1]), { cause: { code: '42P01' } }, 'when it is parsed')
  const before = await pool.query(backend)
  await owner.query('CREATE TABLE later (n integer CHECK (n > 0))')
  await t.rejects(pool.query(insert, [-1]), { cause: { code: '23514' } }, 'when it is executed')
  await t.rejects(pool.query(insert, ['x']), { cause: { code: '22P02' } }, 'for a value')
  t.strictSame(await pool.query(insert, [1]), [{ n: 1 }])
  t.strictSame(await pool.query(insert, [2]), [{ n: 2 }])
  t.strictSame(await pool.query(backend), before)
  t.strictSame(lost, [])
})

t.test('a statement that always fails costs no login each time', async (t) => {
  const size = 3
  const { pool } = await openPool(t, { size })
  const call = { name: 'call', text: 'SELECT missing(1)' }
  const startedAt = performance.now()
  for (let round = 0; round < 100; round++)
    for (const result of await Promise.allSettled([1, 2, 3].map(() => pool.query(call))))
      t.match(result, { status: 'rejected', reason: { cause: { code: '42883' } } })
  const { opened } = pool.statistics()
  const seconds = (performance.now() - startedAt) / 1000
  t.ok(opened <= size * (1 + seconds), `${opened} connections were opened for 300 statements in ${seconds} s`)
})

t.test('no option in the address takes away what the service relies on', async (t) => {
  const { url } = await testDatabase(t)
  const text = 'row_security=on client_min_messages=error inventory.session=x statement_timeout=7s'
  const options = text.split(' ')
  const given = encodeURIComponent(options.map((option) => `-c ${option}`).join(' '))
  const { pool } = await openPool(t, { url: `${url}?options=${given}`, limits: requestLimits })
  const names = options.map((option) => `current_setting('${option.split('=')[0]}')`)
  t.strictSame(await pool.query(`SELECT concat_ws(' ', ${names}) AS set`), [{ set: 'off warning set 5s' }])
})

/** A message of the server that asks for authentication (PostgreSQL manual, section 54.7). */
function authentication(code: number, data = ''): Buffer {
  const message = Buffer.from(`R12345678${data}`, 'latin1')
  message.writeInt32BE(message.length - 1, 1)
  message.writeInt32BE(code, 5)
  return message
}

t.test('a login that pg refuses is an error of the query, and leaves no connection', async (t) => {
  for (const login of [
    // GSS, OAUTH, and SCRAM with more iterations than a client should accept.
    () => authentication(7),
    () => authentication(10, 'OAUTHBEARER\0\0'),
    (sent: string) => {
      const [, nonce] = /,r=(.+)$/.exec(sent) ?? []
      if (nonce === undefined) return authentication(10, 'SCRAM-SHA-256\0\0')
      return authentication(11, `r=${nonce}x,s=c2FsdA==,i=600000`)
    },
  ]) {
    const clients = new Set<Socket>()
    const server = createServer((socket) => {
      clients.add(socket)
      socket.on('error', () => {}).on('close', () => clients.delete(socket))
      socket.on('data', (sent) => socket.write(login(sent.toString('latin1'))))
    })
    const { pool } = await openPool(t, {
      url: `postgres://server:a-password@127.0.0.1:${await listen(t, server)}/db`,
    })
    const cause = { message: /^SASL: .*(mechanism|scramMax)|^Unknown auth/ }
    for (let round = 0; round < 3; round++) await t.rejects(pool.query(backend), { cause })
    await eventually('the connections to be closed', async () => clients.size === 0)
  }
})

t.test('a server that answers the login, but no statement, is given up', async (t) => {
  const { url } = await testDatabase(t)
  const relay = await startRelay(t, url, {
    towardsDatabase: (bytes) => (bytes.includes('SELECT') ? new Promise(() => {}) : bytes),
  })
  const { pool } = await openPool(t, { url: relay.url, limits: { ...requestLimits, connect: 500 } })
  const failure = await pool.query(backend).catch((error: unknown) => error)
  t.match(failure, { outcome: 'notSent', reason: 'late' })
})

t.test('a statement without a response, and a command that is aborted, end with a reset', async (t) => {
  const { url } = await testDatabase(t)
  const relay = await startRelay(t, url)
  const { pool } = await openPool(t, { url: relay.url, limits: { ...longLimits.requests, answer: 500 } })
  const controller = new AbortController()
  const { signal } = controller
  const command = inTransaction({ url: relay.url, signal }, async ({ query }) => {
    await pool.query(backend)
    relay.stall()
    controller.abort()
    await query('SELECT 1')
  })
  await t.rejects(command, signal.reason)
  await eventually('the command to reset its connection', async () => relay.resets() === 1)
  const failure = await pool.query(backend).catch((error: unknown) => error)
  t.match(failure, { outcome: 'unknown', reason: 'late' })
  await eventually('the pool to reset its connection', async () => relay.resets() === 2)
})

t.test('a response is no outcome if the connections are discarded meanwhile', async (t) => {
  const server = new PrimaryServer(() => {})
  const { pool } = await openPool(t, { server })
  const read = pool.readRows('SELECT 1', () => server.discardReadOnly('unknown'))
  t.match(await read.catch((error: unknown) => error), { outcome: 'unknown', reason: 'lost' })
})

/** The end of a response outside of a transaction, in one, or in a failed one (PostgreSQL manual, section 54.7). */
const ready = (state: string): Buffer => Buffer.from(`Z\0\0\0\x05${state}`)

t.test('a connection on which somebody else begins or ends transactions acknowledges nothing', async (t) => {
  const database = await testDatabase(t, { entries: ['1,9,available'] })
  // Imitates pgpool-II in raw mode, which sends a BEGIN of its own.
  let [found, said] = ['-', '-']
  const relay = await startRelay(t, database.url, {
    towardsClient: (bytes) => {
      const at = bytes.lastIndexOf(ready(found))
      return at < 0 ? bytes : Buffer.concat([bytes.subarray(0, at), ready(said), bytes.subarray(at + 6)])
    },
  })
  const { update, log } = await startApp(t, relay.url)
  await database.query(trigger("IF NEW.quantity = 7 THEN RAISE 'refused'; END IF"))
  t.equal((await update(1, 5)).status, 200)
  for (const state of ['T', 'E']) {
    for (const quantity of [5, 7]) {
      ;[found, said] = ['I', state]
      isError(t, await update(1, quantity), 503, 'service_unavailable', `${quantity} ${state}`)
      ;[found, said] = ['-', '-']
      t.equal((await update(1, 5)).status, 200, 'another connection is used')
    }
  }
  const reason = /"cause":"database_unreachable","reason":"a transaction was open after [^"]* pgpool-II/
  t.match(JSON.stringify(log), reason)

  const change = inTransaction({ url: relay.url }, async ({ query }) => {
    ;[found, said] = ['T', 'I']
    await query('UPDATE inventory SET quantity = 6')
  })
  const message = /ended before its COMMIT/
  await t.rejects(change, { outcome: 'unknown', message })
  ;[found, said] = ['T', 'I']
  const read = inTransaction({ url: relay.url, readOnly: true }, async () => t.fail('it must not begin'))
  await t.rejects(read, { outcome: 'notSent', message })
})

t.test('a connection that is lost between two statements is an outage', async (t) => {
  const database = await testDatabase(t)
  const transaction = inTransaction({ url: database.url }, async ({ query }) => {
    const [row] = await query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
    await database.query('SELECT pg_terminate_backend($1, 10000)', [row?.pid])
    // Lets the end of the connection arrive, which an event reports.
    await setTimeout(20)
    await query('SELECT 1')
  })
  t.match(await transaction.catch((error: unknown) => error), { outcome: 'rolledBack', reason: 'lost' })
})

t.test('a transaction with a failed statement is not reported as committed', async (t) => {
  const database = await testDatabase(t)
  const transaction = inTransaction({ url: database.url }, async ({ change }) => {
    await change("INSERT INTO inventory VALUES (1, 1, 'sold')")
    await t.rejects(change('SELECT 1 / 0'), { code: '22012' })
  })
  await t.rejects(transaction, { message: /rolled back/ })
  t.strictSame(await database.query('SELECT FROM inventory'), [])
})
