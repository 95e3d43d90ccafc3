import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import type { Case } from './cases.ts'
import { type BenchDatabase, changedPet } from './database.ts'
import type { Server } from './servers.ts'

/** The result of one round. Times are in milliseconds. */
export interface Sample {
  readonly count: number
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
  /** Requests without a response, or with a status of 400 or more. */
  readonly errors: number
}

/** A server under the load of a case. */
export interface Contender {
  /** The process whose CPU time counts. */
  readonly pid: number
  /** Rejects if a response is wrong, because the speed of wrong responses means nothing. */
  verify(): Promise<void>
  /** Generates the load of the case for at least `seconds`. */
  measure(given: Case, seconds: number): Promise<Sample>
  stop(): Promise<void>
}

const script = fileURLToPath(new URL('./wrk.lua', import.meta.url))

/** The last line of wrk's output, which the script prints; times are in microseconds. */
const Summary = Type.Object({
  requests: Type.Integer(),
  duration: Type.Number(),
  errors: Type.Integer(),
  p50: Type.Number(),
  p99: Type.Number(),
})

/** A server over HTTP, with the load of wrk. */
export function contenderOf(server: Server, key: string, database: BenchDatabase): Contender {
  const authorization = `Bearer ${key}`
  const list = (): Promise<string> => textOf(`${server.origin}/v1/inventory`, { headers: { authorization } })
  return {
    pid: server.pid,
    stop: () => server.stop(),
    async verify() {
      const headers = { authorization, 'content-type': 'application/json' }
      const request = { method: 'PATCH', headers, body: '{"quantity":77}' }
      const entry = await textOf(`${server.origin}/v1/inventory/${changedPet}`, request)
      if (entry !== textOfChanged(77)) throw new Error(`the response to an update is ${entry}`)
      if ((await list()) !== (await database.list())) throw new Error('the list differs from the table')
    },
    async measure({ work, callers, entries }, seconds) {
      if (work === 'after-change') {
        return repeat(seconds, async () => {
          const changed = textOfChanged(await database.change())
          let body: Buffer = Buffer.alloc(0)
          const time = await timed(async () => {
            body = await bytesOf(`${server.origin}/v1/inventory`, authorization)
          })
          if (!body.includes(changed)) throw new Error('a list does not show the change')
          return time
        })
      }
      const options = ['--threads=1', `--connections=${callers}`, `--duration=${seconds}s`, '--timeout=60s']
      const args = [...options, `--script=${script}`, server.origin, '--', work, key, String(entries)]
      const { stdout } = await promisify(execFile)('wrk', args)
      const { requests, duration, errors, p50, p99 } = Value.Parse(
        Summary,
        JSON.parse(stdout.trimEnd().split('\n').at(-1) ?? ''),
      )
      const perSecond = requests / (duration / 1e6)
      // The server may still serve requests that wrk has aborted. Its pool serves this one after them.
      await list()
      return { count: requests, perSecond, p50: p50 / 1000, p99: p99 / 1000, errors }
    },
  }
}

function textOfChanged(quantity: number): string {
  return `{"petId":${changedPet},"quantity":${quantity},"status":"available"}`
}

async function textOf(url: string, request: RequestInit): Promise<string> {
  const response = await fetch(url, request)
  if (response.status !== 200) throw new Error(`a response has the status ${response.status}`)
  return response.text()
}

/** Reads a response without gzip, which takes longer to decode for a large list than the service takes to make it. */
async function bytesOf(url: string, authorization: string): Promise<Buffer> {
  const response = await fetch(url, { headers: { authorization, 'accept-encoding': 'identity' } })
  return Buffer.from(await response.arrayBuffer())
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now()
  await work()
  return performance.now() - start
}

/** Repeats `take`, which returns a time, for `seconds`, but at least twice. Only these times count. */
async function repeat(seconds: number, take: () => Promise<number>): Promise<Sample> {
  const times: number[] = []
  const end = performance.now() + seconds * 1000
  while (times.length < 2 || performance.now() < end) times.push(await take())
  const sorted = times.toSorted((a, b) => a - b)
  const quantile = (share: number): number => sorted[Math.ceil(sorted.length * share) - 1] ?? Number.NaN
  const total = times.reduce((sum, time) => sum + time, 0)
  const count = times.length
  return { count, perSecond: (count / total) * 1000, p50: quantile(0.5), p99: quantile(0.99), errors: 0 }
}
