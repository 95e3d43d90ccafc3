import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, rm } from 'node:fs/promises'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { makeRunFolder } from './run-folder.ts'
import { startTestServer } from './server.ts'

/**
 * Runs test files against one PostgreSQL server, found or started here. Each file is a process of its own, so the server
 * belongs to a parent of them all. The exit code of this process says how it went.
 *
 * All temporary files are in one folder.
 *
 * @param files paths from the root of the project, as TypeScript
 * @param jobs test files at a time
 * @param variables of the environment of the tests
 */
export async function runTap(
  files: readonly string[],
  jobs: number,
  variables: Readonly<Record<string, string>>,
): Promise<void> {
  const folder = await makeRunFolder()
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
        const env = { ...process.env, ...variables, ...server.env, TMPDIR: folder }
        const isOk = await run(files, jobs, env, interruption.signal)
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
  jobs: number,
  env: NodeJS.ProcessEnv,
  interruption: AbortSignal,
): Promise<boolean> {
  const compiled = files.map((file) => path.join('.test-build', file.replace(/\.ts$/, '.js')))
  const args = [path.join(import.meta.dirname, 'run-files.js'), String(jobs), ...compiled]
  const tap = spawn(process.execPath, args, {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
    // A process group of its own, so that a signal reaches the tests and the programs that they started.
    detached: true,
  })
  interruption.addEventListener('abort', () => endGroup(tap))
  const ended = once(tap, 'exit')
  await printBriefly(createInterface(tap.stdout))
  const [code] = await ended
  return code === 0
}

/** Prints a line of TAP for each test file, and before that of one that fails everything in it that has not passed. */
async function printBriefly(lines: AsyncIterable<string>): Promise<void> {
  let details: string[] = []
  for await (const line of lines) {
    if (line.startsWith(' ')) {
      if (!/^ +($|ok \d|# Subtest|1\.\.\d)/.test(line)) details.push(line)
      continue
    }
    if (line.startsWith('not ok')) console.log(details.join('\n'))
    if (!/^(TAP|# Subtest|1\.\.|$)/.test(line)) console.log(line)
    details = []
  }
}

/** Kills the process group of a process, even if that process itself has ended. */
function endGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // It has ended.
  }
}
