import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { availableParallelism, tmpdir } from 'node:os'
import path from 'node:path'
import { root } from './root.ts'
import { startTestServer } from './server.ts'

/** Test files at a time: two for each processor, as many of them wait for time to pass. */
const JOBS = 2 * availableParallelism()

/**
 * Runs test files against one PostgreSQL server, found or started here: tap runs each file as a process of its own, so
 * the server must belong to a parent of them all. The exit code of this process says how it went.
 *
 * All temporary files are in one folder.
 *
 * @param files paths from the root of the project, as TypeScript
 */
export async function runTap(files: readonly string[], options: readonly string[] = []): Promise<void> {
  const folder = await mkdtemp(path.join(tmpdir(), 'petstore-inventory-test-'))
  // For the account that the server runs as where this is root.
  await chmod(folder, 0o755)
  const interruption = new AbortController()
  for (const name of ['SIGHUP', 'SIGINT', 'SIGTERM'] as const) {
    process.on(name, (_: NodeJS.Signals, number: number) => {
      process.exitCode = 128 + number
      interruption.abort()
    })
  }
  try {
    const server = await startTestServer(folder)
    console.log(`PostgreSQL for the tests: ${server.source}`)
    try {
      if (!interruption.signal.aborted) {
        const env = { ...process.env, ...server.env, TMPDIR: folder }
        const isOk = await run(files, options, env, interruption.signal)
        process.exitCode ??= isOk ? 0 : 1
      }
    } finally {
      await server.stop()
    }
  } finally {
    // Servers of tests that were interrupted may still be stopping.
    await rm(folder, { recursive: true, force: true, maxRetries: 10 })
  }
}

/** Returns whether all tests passed. */
async function run(
  files: readonly string[],
  options: readonly string[],
  env: NodeJS.ProcessEnv,
  interruption: AbortSignal,
): Promise<boolean> {
  const compiled = files.map((file) => path.join('.test-build', file.replace(/\.ts$/, '.js')))
  const tap = spawn('tap', ['run', '--reporter=terse', `--jobs=${JOBS}`, ...options, ...compiled], {
    cwd: root,
    env,
    stdio: ['ignore', 'inherit', 'inherit'],
    // A process group of its own, so that a signal reaches the tests and the programs that they started.
    detached: true,
  })
  interruption.addEventListener('abort', () => endGroup(tap))
  const [code] = await once(tap, 'exit')
  return code === 0
}

/** Kills the process group of a process, even if that process itself has ended. */
export function endGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // It has ended.
  }
}
