/** Generates one process's share of the load, and reports to the process that started it. */
import { randomInt } from 'node:crypto'
import autocannon, { type Request, type Result } from 'autocannon'
import type { Load } from './generator.ts'
import { receiveOrder, reportShare } from './processes.ts'

const load = await receiveOrder<Load>()

const list: Request = {
  method: 'GET',
  path: '/v1/inventory',
  headers: {
    authorization: `Bearer ${load.key}`,
    ...(load.work === 'if-none-match' && load.etag !== '' ? { 'if-none-match': load.etag } : {}),
  },
}

function update(): Request {
  return {
    method: 'PATCH',
    path: `/v1/inventory/${randomInt(1, load.entries + 1)}`,
    headers: { authorization: `Bearer ${load.key}`, 'content-type': 'application/json' },
    body: `{"quantity":${randomInt(1000)}}`,
  }
}

/**
 * One connection's requests, in its own order: connections repeat their requests, and must not all update the same row at
 * once.
 */
function requests(): Request[] {
  if (load.work === 'update') return Array.from({ length: 100 }, update)
  if (load.work !== 'mix') return [list]
  const start = randomInt(10)
  return Array.from({ length: 100 }, (_, index) => (index % 10 === start ? update() : list))
}

const times: number[] = []
let bytes = 0
let refused = 0
const result = await new Promise<Result>((resolve, reject) => {
  const run = autocannon(
    {
      url: load.origin,
      connections: load.connections,
      duration: load.seconds,
      timeout: 60,
      setupClient: (client) => client.setRequests(requests()),
    },
    (error, result) => (error ? reject(error) : resolve(result)),
  )
  run.on('response', (_client, status, size, milliseconds) => {
    times.push(milliseconds)
    bytes += size
    if (status >= 400) refused += 1
  })
})
reportShare({
  times: Float64Array.from(times),
  seconds: result.duration,
  bytes,
  errors: refused + result.errors + result.timeouts,
})
