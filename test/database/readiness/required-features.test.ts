import t from 'tap'
import { requiredFeatures } from '../../../src/database/readiness/required-features.ts'
import { startApp } from '../../support/app.ts'
import { addEntries, testDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { json } from '../../support/http.ts'
import { lackingServer } from '../../support/lacking-server.ts'
import { startProgram } from '../../support/program.ts'

/** The text of each feature in the statements that use it. */
const texts: Readonly<Record<string, string>> = {
  'pg_current_snapshot(), the snapshot of a transaction': 'pg_current_snapshot(',
  'xmin, the system column of row versions': 'xmin',
  'age(xid), the age of a transaction': 'age(',
  'pg_postmaster_start_time(), the start of the server': 'pg_postmaster_start_time(',
  'the columns of pg_attribute and pg_index, the system catalogs': 'attgenerated',
  'concat_ws(), array_agg() and string_agg()': 'string_agg(',
  'row_security_active()': 'row_security_active(',
  'unnest() of several arrays': 'unnest(',
  'WITH … AS MATERIALIZED': 'AS MATERIALIZED',
  'FOR NO KEY UPDATE SKIP LOCKED': 'SKIP LOCKED',
}

t.test('each feature has a test', async (t) => {
  t.strictSame(Object.keys(texts), requiredFeatures)
})

for (const [name, text] of Object.entries(texts)) {
  t.test(`a server that lacks ${name}`, async (t) => {
    const database = await testDatabase(t)
    await addEntries(database, [
      ['1', 1, 'sold'],
      ['2', 2, 'sold'],
    ])
    const server = await lackingServer(t, database.url, text)
    const reason = `The database does not support ${name}, which this service needs.`

    // A process that cannot reach the server yet says it on /readyz.
    const { send } = await startApp(t, server.url)
    server.open()
    const readiness = await eventually('the service to reach the server', async () => {
      const answer = await send('GET', '/readyz')
      return answer.text.includes('cannot be reached') ? undefined : answer
    })
    t.equal(readiness.status, 503)
    t.match(readiness.text, reason)
    const { headers, ...request } = json({ quantity: 3 })
    const conditional = { ...request, headers: { ...headers, 'if-match': '"2-sold"' } }
    const answers = await Promise.all([
      send('GET', '/v1/inventory'),
      send('PATCH', '/v1/inventory/1', json({ quantity: 3 })),
      ...Array.from({ length: 10 }, () => send('PATCH', '/v1/inventory/1', json({ quantity: 3 }))),
      ...Array.from({ length: 10 }, () => send('PATCH', '/v1/inventory/2', conditional)),
    ])
    for (const { status, text } of answers) t.ok([200, 412, 503].includes(status), `${status}: ${text}`)

    await t.rejects(startApp(t, server.url), { message: reason })
  })
}

for (const text of ['pg_is_in_recovery(', 'to_regclass(']) {
  t.test(`a server that lacks ${text}), which the check of readiness needs itself`, async (t) => {
    const database = await testDatabase(t)
    const server = await lackingServer(t, database.url, text)
    const { send } = await startApp(t, server.url)
    server.open()
    const reason = new RegExp(
      `The database does not support a statement that this service needs: function ${text.slice(0, -2)}`,
    )
    await eventually('the service to reach the server', async () => {
      const answer = await send('GET', '/readyz')
      return answer.status === 503 && reason.test(answer.text) ? true : undefined
    })
    await t.rejects(startApp(t, server.url), { message: reason })
  })
}

t.test('the program ends with one sentence', async (t) => {
  const database = await testDatabase(t)
  const server = await lackingServer(t, database.url, 'xmin')
  server.open()
  const started = await startProgram(t, 'server', { env: { DATABASE_URL: server.url, PORT: '0' } })
  const { code, stderr } = await started.ended
  t.equal(code, 1)
  t.match(
    stderr,
    'petstore-inventory: The database does not support xmin, the system column of row versions, which this service needs. See docs/compatibility.md.',
  )
  t.notMatch(stderr, /\n {4}at /, 'no stack trace')
})
