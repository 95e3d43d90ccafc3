import { once } from 'node:events'
import { Agent } from 'node:http'
import t from 'tap'
import { RequestStatistics } from '../../../src/http/connections/request-statistics.ts'
import { apiKey, startApp } from '../../support/app.ts'
import { testDatabase } from '../../support/database.ts'
import { callerOf } from '../../support/http.ts'
import { openRaw } from '../../support/raw.ts'

/** The number of completed requests by method, route and status. */
async function counts({ durations }: RequestStatistics): Promise<string[]> {
  const { values } = await durations.get()
  return values
    .filter(({ metricName }) => metricName?.endsWith('_count'))
    .map(({ labels, value }) => {
      const { http_request_method: method, http_route: route, http_response_status_code: status } = labels
      return `${method} ${route} ${status}: ${value}`
    })
    .sort()
}

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
    return counts(statistics)
  }
  t.strictSame(await makeUp(2), [
    'GET  404: 2',
    'PATCH /v1/inventory/:petId 401: 2',
    '_OTHER  401: 2',
    '_OTHER  404: 2',
  ])
  t.strictSame(
    await makeUp(20),
    ['GET  404: 22', 'PATCH /v1/inventory/:petId 401: 22', '_OTHER  401: 22', '_OTHER  404: 22'],
    'each request is counted',
  )
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
  t.strictSame(await counts(statistics), ['PATCH /v1/inventory/:petId : 1'])
})
