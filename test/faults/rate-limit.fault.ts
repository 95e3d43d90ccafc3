import { Agent } from 'node:http'
import t, { type Test } from 'tap'
import { apiKey, startService } from '../support/app.ts'
import { startBalancer } from '../support/balancer.ts'
import { createSender, isError, type Send } from '../support/http.ts'
import { freePort } from '../support/ports.ts'

const LIMIT = 20

/** Returns what sends requests with a header `Authorization`, from an address of this machine, for a client. */
async function setUp(t: Test, env: Readonly<Record<string, string>> = {}) {
  const { port: server } = await startService(t, [], {
    app: { apiKeys: { find: (key) => (key.startsWith(apiKey) ? { name: key } : undefined) } },
  })
  const { port } = await startBalancer(t, [server], { RATE_LIMIT: String(LIMIT), ...env })
  return (authorization?: string, localAddress = '127.0.0.1', client = '203.0.113.9') => {
    const headers = { 'x-forwarded-for': client, ...(authorization === undefined ? {} : { authorization }) }
    return createSender(port, headers, new Agent({ localAddress }))
  }
}

/** How often each status came. */
async function countStatuses(senders: readonly Send[]): Promise<Record<string, number>> {
  const statuses: Record<string, number> = {}
  for (const send of senders) {
    const { status } = await send('GET', '/v1/inventory')
    statuses[status] = (statuses[status] ?? 0) + 1
  }
  return statuses
}

t.test('HAProxy limits the rate of each key, however it is written', async (t) => {
  const caller = await setUp(t)
  for (const key of [`${apiKey}1`, `${apiKey}2`]) {
    const spellings = Array.from({ length: 3 * LIMIT }, (_, index) => {
      const scheme = [...'bearer'].map((letter, bit) => (index & (1 << bit) ? letter.toUpperCase() : letter))
      const space = [' ', '\t', '\xa0'][index % 3]?.repeat(index) ?? ''
      return caller(`${scheme.join('')} ${space}${key}${index % 2 ? space : ''}`)
    })
    t.strictSame(await countStatuses(spellings), { 200: LIMIT, 429: 2 * LIMIT })
    const answer = await caller(`Bearer ${key}`)('GET', '/v1/inventory')
    isError(t, answer, 429, 'too_many_requests')
    t.equal(answer.headers['retry-after'], '10')
  }
})

t.test('HAProxy limits the 401s of each address, but not the keys that it has seen accepted', async (t) => {
  const caller = await setUp(t)
  const accepted = caller(`Bearer ${apiKey}`)
  t.strictSame(await countStatuses([accepted]), { 200: 1 })
  const guesses = Array.from({ length: 3 * LIMIT }, (_, index) =>
    caller(index % 2 ? `Bearer guess-${index}` : undefined),
  )
  t.strictSame(await countStatuses(guesses), { 401: LIMIT, 429: 2 * LIMIT })
  t.equal((await caller()('GET', '/livez')).status, 200, 'health checks are not limited')
  t.strictSame(await countStatuses([accepted]), { 200: 1 })
  t.strictSame(await countStatuses([caller(`Bearer ${apiKey}1`, '127.0.0.2')]), { 200: 1 })
})

t.test('no other answer lifts the limit of 401s, and only accepted keys are remembered', async (t) => {
  const metrics = await freePort()
  const caller = await setUp(t, { METRICS: `127.0.0.1:${metrics}` })
  await caller(`Bearer ${apiKey}`)('GET', '/v1/inventory')
  const statuses: Record<number, number> = {}
  for (let index = 0; index < 2 * LIMIT; index++) {
    const send = caller(`Bearer guess-${index}`)
    for (const path of ['/livez', '/docs', '/nothing', '/v1/%zz']) await send('GET', path)
    const { status } = await send('GET', '/v1/inventory')
    statuses[status] = (statuses[status] ?? 0) + 1
  }
  t.strictSame(statuses, { 401: LIMIT, 429: LIMIT })
  const { text } = await createSender(metrics)('GET', '/metrics')
  t.match(text, /^haproxy_sticktable_used\{name="keys",type="\w+"\} 1$/m)
})

t.test('behind proxies, HAProxy limits their clients, whom they name in X-Forwarded-For', async (t) => {
  const caller = await setUp(t, { PROXIES: '127.0.0.5 127.0.0.6 10.0.0.0/8' })
  const guessing = (client: string): Send => caller('Bearer guess', '127.0.0.5', client)
  const guesses = Array.from({ length: 2 * LIMIT }, (_, index) => guessing(`192.0.2.${index}, 203.0.113.1`))
  t.strictSame(await countStatuses(guesses), { 401: LIMIT, 429: LIMIT })
  t.strictSame(await countStatuses([caller('Bearer guess', '127.0.0.6', '203.0.113.1, 10.1.1.1')]), {
    429: 1,
  })
  t.strictSame(await countStatuses([guessing('203.0.113.2'), guessing('2001:db8::1')]), { 401: 2 })
  t.strictSame(await countStatuses([caller(`Bearer ${apiKey}`, '127.0.0.5', '203.0.113.2')]), { 200: 1 })
  const other = caller('Bearer guess', '127.0.0.1', '203.0.113.1')
  t.strictSame(await countStatuses([other]), { 401: 1 }, 'not a proxy')
})
