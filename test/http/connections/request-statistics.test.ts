import { once } from 'node:events'
import { Agent } from 'node:http'
import t from 'tap'
import { RequestStatistics } from '../../../src/http/connections/request-statistics.ts'
import { apiKey, startApp } from '../../support/app.ts'
import { testDatabase } from '../../support/database.ts'
import { callerOf } from '../../support/http.ts'
import { openRaw } from '../../support/raw.ts'

t.test('made-up paths, ids and methods add no series', async (t) => {
  const database = await testDatabase(t)
  const statistics = new RequestStatistics()
  const { port } = await startApp(t, database.url, { app: { requestStatistics: statistics } })
  const agent = new Agent({ keepAlive: true, maxSockets: 32 })
  t.teardown(() => agent.destroy())
  const send = callerOf(port, { authorization: 'Bearer nobody' }, agent)
  const methods = ['MKCOL', 'PROPFIND', 'PURGE', 'SUBSCRIBE']
  const makeUp = async (rounds: number): Promise<string[]> => {
    await Promise.all(
      Array.from({ length: rounds }, async (_, round) => {
        await send('GET', `/made-up/${round}?of=${round}`)
        await send('PATCH', `/v1/inventory/${round}`)
        await send(methods[round % methods.length] ?? '', `/v1/${round}`)
        await send(methods[round % methods.length] ?? '', '/livez')
      }),
    )
    return statistics.durations.map(({ route, method, status }) => `${method} ${route} ${status}`).sort()
  }
  t.strictSame(await makeUp(2), [
    'GET undefined 404',
    'PATCH /v1/inventory/:petId 401',
    '_OTHER /livez 405',
    '_OTHER undefined 401',
  ])
  t.equal((await makeUp(20)).length, 4)
  const counted = statistics.durations.map(({ durations }) =>
    durations.counts.reduce((sum, one) => sum + one),
  )
  t.strictSame(counted, [22, 22, 22, 22], 'each request is counted')
})

t.test('a request that its caller gives up has a duration and no status', async (t) => {
  const database = await testDatabase(t)
  const statistics = new RequestStatistics()
  const { port, close } = await startApp(t, database.url, { app: { requestStatistics: statistics } })
  const { socket } = await openRaw(port)
  const asked = once(socket, 'data')
  socket.write(
    `PATCH /v1/inventory/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${apiKey}\r\n` +
      'Content-Type: application/json\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n',
  )
  t.match(String((await asked)[0]), /^HTTP\/1.1 100/, 'the body is waited for')
  socket.destroy()
  await close()
  t.match(statistics.durations, [{ route: '/v1/inventory/:petId', method: 'PATCH', status: undefined }])
})
