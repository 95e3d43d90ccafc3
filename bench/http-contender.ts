import { Agent, type OutgoingHttpHeaders, request } from 'node:http'
import type { Contender } from './cases.ts'
import { type BenchDatabase, changedPet } from './database.ts'
import type { Generator } from './load/generator.ts'
import type { Server } from './servers.ts'
import { repeat } from './statistics.ts'

export interface HttpContenderOptions {
  readonly server: Server
  readonly key: string
  readonly generator: Generator
  readonly database: BenchDatabase
  /** The list response for the initial inventory. */
  readonly list: Buffer
}

/** Returns a contender that measures a server over HTTP. */
export function httpContender({ server, key, generator, database, list }: HttpContenderOptions): Contender {
  const authorization = `Bearer ${key}`
  const listUrl = `${server.origin}/v1/inventory`
  const askList = (etag?: string, agent?: Agent): Promise<TimedAnswer> =>
    ask(listUrl, { headers: { authorization, ...(etag ? { 'if-none-match': etag } : {}) }, agent })
  const listAfterChange = async (agent: Agent): Promise<number> => {
    const quantity = await database.change()
    const { status, body, milliseconds } = await askList(undefined, agent)
    if (status !== 200 || !body.subarray(0, 1000).includes(entryText(quantity)))
      throw new Error(`the list after a change has the status ${status} and does not show the change`)
    return milliseconds
  }
  let etag = ''

  return {
    async verify({ work }) {
      const answer = await askList()
      expectAnswer('the list', answer, list)
      etag = answer.etag ?? ''
      if (work === 'if-none-match' && etag !== '') {
        const { status } = await askList(etag)
        if (status !== 304) throw new Error(`the response to If-None-Match has the status ${status}`)
      }
      if (work === 'update' || work === 'mix') {
        const updated = await ask(`${listUrl}/${changedPet}`, {
          method: 'PATCH',
          headers: { authorization, 'content-type': 'application/json' },
          body: '{"quantity":77}',
        })
        expectAnswer('an update', updated, entryText(77))
      }
    },

    async measure({ work, entries, connections }, seconds) {
      if (work === 'after-change') {
        // A single client keeps its connection open, as in the other cases.
        const agent = new Agent({ keepAlive: true, maxSockets: 1 })
        return repeat(seconds, () => listAfterChange(agent)).finally(() => agent.destroy())
      }
      const { origin } = server
      const sample = await generator.run({
        origin,
        key,
        work,
        etag,
        entries,
        listBytes: list.length,
        connections,
        seconds,
      })
      // The server may still process requests that the load generator aborted. Its pool serves this request after them.
      await askList()
      return sample
    },

    cpuSeconds: () => server.cpuSeconds(),
    stop: () => server.stop(),
  }
}

/** Returns the JSON text of the entry that the verification changes. */
function entryText(quantity: number): Buffer {
  return Buffer.from(`{"petId":${changedPet},"quantity":${quantity},"status":"available"}`)
}

function expectAnswer(what: string, { status, body }: TimedAnswer, expected: Buffer): void {
  if (status === 200 && body.equals(expected)) return
  let at = 0
  while (at < expected.length && body[at] === expected[at]) at++
  throw new Error(
    `${what} was answered with ${status} and ${body.length} bytes, from byte ${at} on wrong: ${body.subarray(at, at + 100)}`,
  )
}

/** A response, and the time from the request to its last byte, including the time to connect. */
interface TimedAnswer {
  readonly status: number
  readonly etag: string | undefined
  readonly body: Buffer
  readonly milliseconds: number
}

/** Sends a request. Without an agent, it opens its own connection. */
function ask(
  url: string,
  {
    method = 'GET',
    headers,
    body,
    agent,
  }: { method?: string; headers: OutgoingHttpHeaders; body?: string; agent?: Agent | undefined },
): Promise<TimedAnswer> {
  return new Promise((resolve, reject) => {
    const start = performance.now()
    const outgoing = request(url, { method, headers, agent: agent ?? false }, (incoming) => {
      const chunks: Buffer[] = []
      incoming.on('data', (chunk: Buffer) => chunks.push(chunk))
      incoming.on('error', reject)
      incoming.on('end', () => {
        const milliseconds = performance.now() - start
        const { statusCode = 0, headers } = incoming
        resolve({ status: statusCode, etag: headers.etag, body: Buffer.concat(chunks), milliseconds })
      })
    })
    outgoing.on('error', reject)
    outgoing.end(body)
  })
}
