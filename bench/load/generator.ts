import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import type { Work } from '../cases.ts'
import { packageVersion } from '../machine.ts'
import type { Sample } from '../statistics.ts'
import { inProcesses, loadProcesses, split } from './processes.ts'

/** The requests to send to a server, on how many connections, and for how long. */
export interface Load {
  readonly origin: string
  readonly key: string
  readonly work: Exclude<Work, 'after-change'>
  /** Sent in If-None-Match if the work uses it; empty if the server has no entity tags. */
  readonly etag: string
  /** Updates go to ids from 1 to this. */
  readonly entries: number
  /** The length of a whole list. */
  readonly listBytes: number
  readonly connections: number
  readonly seconds: number
}

/** A load generator that sends requests as fast as they are answered, one at a time on each connection. */
export interface Generator {
  /** Its name and version. */
  readonly name: string
  run(load: Load): Promise<Sample>
}

/** wrk if it is installed, otherwise autocannon. */
export async function findGenerator(): Promise<Generator> {
  return (await wrkGenerator()) ?? autocannonGenerator()
}

const run = promisify(execFile)
const script = fileURLToPath(new URL('./wrk.lua', import.meta.url))

/** The last line of wrk's output, which the script prints; times are in microseconds. */
const Summary = Type.Object({
  requests: Type.Integer(),
  duration: Type.Number(),
  bytes: Type.Number(),
  errors: Type.Integer(),
  p50: Type.Number(),
  p99: Type.Number(),
})

/** The load generator wrk; undefined if it is not installed. */
async function wrkGenerator(): Promise<Generator | undefined> {
  const version = await installedVersion()
  if (version === undefined) return undefined
  return {
    name: version,
    async run(load) {
      const { stdout } = await run('wrk', [
        `--threads=${loadProcesses(load.connections)}`,
        `--connections=${load.connections}`,
        `--duration=${load.seconds}s`,
        '--timeout=60s',
        `--script=${script}`,
        load.origin,
        '--',
        load.work,
        load.key,
        String(load.entries),
        load.etag,
      ])
      const summary = Value.Parse(Summary, JSON.parse(stdout.trimEnd().split('\n').at(-1) ?? ''))
      return {
        perSecond: summary.requests / (summary.duration / 1e6),
        p50: summary.p50 / 1000,
        p99: summary.p99 / 1000,
        errors: summary.errors + shortLists(load, summary.requests, summary.bytes),
        count: summary.requests,
      }
    },
  }
}

/** wrk prints its version and its usage, and exits with 1. */
async function installedVersion(): Promise<string | undefined> {
  const text = await run('wrk', ['--version']).then(
    ({ stdout }) => stdout,
    (error: unknown) => (error instanceof Error && 'stdout' in error ? String(error.stdout) : ''),
  )
  return /^wrk \S+/.exec(text)?.[0]
}

/** The load generator autocannon. */
function autocannonGenerator(): Generator {
  return {
    name: packageVersion('autocannon'),
    async run(load) {
      const orders = split(load.connections, loadProcesses(load.connections)).map((connections) => ({
        ...load,
        connections,
      }))
      const { sample, answers, bytes } = await inProcesses('./autocannon-process.ts', orders)
      return { ...sample, errors: sample.errors + shortLists(load, answers, bytes) }
    },
  }
}

/** The number of responses that cannot have been whole lists, from the bytes of all of them. */
function shortLists({ work, listBytes }: Load, answers: number, bytes: number): number {
  return work === 'list' ? Math.max(0, Math.ceil(answers - bytes / listBytes)) : 0
}
