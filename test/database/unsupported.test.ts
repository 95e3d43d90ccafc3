import t from 'tap'
import { startApp } from '../support/app.ts'
import { testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { startLackingServer } from '../support/relay.ts'

t.test('a server that lacks a feature is a reason not to be ready, and no request gets a 500', async (t) => {
  const database = await testDatabase(t, { entries: ['1,1,sold'] })
  const server = await startLackingServer(t, database.url, 'RETURNING')

  // A process that cannot reach the server yet says it on /readyz.
  server.fail()
  const { send, update } = await startApp(t, server.url)
  await server.restore()
  const readiness = await eventually('the service to reach the server', async () => {
    const answer = await send('GET', '/readyz')
    return answer.text.includes('cannot be reached') ? undefined : answer
  })
  t.equal(readiness.status, 503)
  t.match(readiness.text, 'The database does not support a statement that this service needs: ')
  t.match(readiness.text, /syntax error at or near/)
  const updates = Array.from({ length: 11 }, () => update(1, 3))
  for (const { status, text } of await Promise.all([send('GET', '/v1/inventory'), ...updates]))
    t.ok([200, 503].includes(status), `${status}: ${text}`)
})
