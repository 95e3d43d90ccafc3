import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import type { Generator } from './generator.ts'
import { loadProcesses } from './parallelism.ts'
import { shortLists } from './short-lists.ts'

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
export async function wrkGenerator(): Promise<Generator | undefined> {
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
