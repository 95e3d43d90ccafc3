import t from 'tap'
import { startApp } from '../support/app.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { json } from '../support/http.ts'
import { lackingServer } from '../support/lacking-server.ts'
import { startProgram } from '../support/program.ts'

for (const [text, message] of [
  ['pg_current_snapshot(', 'function pg_current_snapshoq() does not exist'],
  ['SKIP LOCKED', /syntax error at or near/],
] as const) {
  t.test(`a server that lacks ${text}`, async (t) => {
    const database = await testDatabase(t)
    await addEntries(database, [
      ['1', 1, 'sold'],
      ['2', 2, 'sold'],
    ])
    const server = await lackingServer(t, database.url, text)

    // A process that cannot reach the server yet says it on /readyz.
    const { send } = await startApp(t, server.url)
    server.open()
    const readiness = await eventually('the service to reach the server', async () => {
      const answer = await send('GET', '/readyz')
      return answer.text.includes('cannot be reached') ? undefined : answer
    })
    t.equal(readiness.status, 503)
    t.match(readiness.text, 'The database does not support a statement that this service needs: ')
    t.match(readiness.text, message)
    const { headers, ...request } = json({ quantity: 3 })
    const conditional = { ...request, headers: { ...headers, 'if-match': '"2-sold"' } }
    const answers = await Promise.all([
      send('GET', '/v1/inventory'),
      send('PATCH', '/v1/inventory/1', json({ quantity: 3 })),
      ...Array.from({ length: 10 }, () => send('PATCH', '/v1/inventory/1', json({ quantity: 3 }))),
      ...Array.from({ length: 10 }, () => send('PATCH', '/v1/inventory/2', conditional)),
    ])
    for (const { status, text } of answers) t.ok([200, 412, 503].includes(status), `${status}: ${text}`)

    await t.rejects(startApp(t, server.url), { message })
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
    'petstore-inventory: The database does not support a statement that this service needs: column pg_class.xmiq does not exist. See docs/limits.md.',
  )
  t.notMatch(stderr, /\n {4}at /, 'no stack trace')
})
