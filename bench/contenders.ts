import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { Case } from './cases.ts'
import { type BenchDatabase, changedPet } from './database.ts'
import type { Server } from './servers.ts'

/** The result of one round, as the script prints it in the last line of wrk's output. Times are in milliseconds. */
export interface Sample {
  readonly count: number
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
  /** Requests without a response, or with a status of 400 or more. */
  readonly errors: number
}

const script = fileURLToPath(new URL('./wrk.lua', import.meta.url))

export type Contender = ReturnType<typeof createContender>

/** Returns a server with the load of the cases. */
export function createContender(server: Server, database: BenchDatabase) {
  const { key } = database
  // Without gzip, which takes longer to decode for a large list than the service takes to make it.
  const headers = { authorization: `Bearer ${key}`, 'accept-encoding': 'identity' }
  const list = (): Promise<Buffer> => fetchBody(`${server.origin}/v1/inventory`, { headers })
  return {
    ...server,

    /** Rejects if a response is wrong, because the speed of wrong responses means nothing. */
    async verify(): Promise<void> {
      const entry = await fetchBody(`${server.origin}/v1/inventory/${changedPet}`, {
        method: 'PATCH',
        headers: { ...headers, 'content-type': 'application/json' },
        body: '{"quantity":77}',
      })
      if (String(entry) !== toChangedEntry(77)) throw new Error(`the response to an update is ${entry}`)
      if (String(await list()) !== (await database.list())) throw new Error('the list differs from the table')
    },

    /** Generates the load of the case for at least `seconds`. */
    async measure({ work, callers, entries }: Case, seconds: number): Promise<Sample> {
      if (work === 'after-change') {
        return repeat(seconds, async () => {
          const changed = toChangedEntry(await database.change())
          const start = performance.now()
          const body = await list()
          const time = performance.now() - start
          if (!body.includes(changed)) throw new Error('a list does not show the change')
          return time
        })
      }
      const options = ['--threads=1', `--connections=${callers}`, `--duration=${seconds}s`, '--timeout=60s']
      const args = [...options, `--script=${script}`, server.origin, '--', work, key, String(entries)]
      const { stdout } = await promisify(execFile)('wrk', args)
      // The server may still serve requests that wrk has aborted. Its pool serves this one after them.
      await list()
      return JSON.parse(stdout.trimEnd().split('\n').at(-1) ?? '')
    },
  }
}

function toChangedEntry(quantity: number): string {
  return `{"petId":${changedPet},"quantity":${quantity},"status":"available"}`
}

async function fetchBody(url: string, request: RequestInit): Promise<Buffer> {
  const response = await fetch(url, request)
  if (response.status !== 200) throw new Error(`a response has the status ${response.status}`)
  return Buffer.from(await response.arrayBuffer())
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
