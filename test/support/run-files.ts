import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, rm } from 'node:fs/promises'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { makeRunFolder } from './run-folder.ts'
import { startTestServer } from './server.ts'

/** How long a file may take, in seconds: more than on any machine, unless it hangs. */
const LIMIT_SECONDS = 3600

// Node 20 warns of the mocked timers.
const FLAGS = ['--enable-source-maps', '--disable-warning=ExperimentalWarning']

/**
 * Runs test files against one PostgreSQL server, found or started here. Each is a process of its own, so the server belongs to
 * their parent. Prints a line for each file, and before that of one that fails everything in it that has not passed. The exit code of
 * this process says how it went.
 *
 * All temporary files are in one folder.
 *
 * @param files paths from the root of the project, as TypeScript
 * @param jobs test files at a time
 * @param variables of the environment of the tests
 */
export async function runFiles(
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
      const limit = { TAP_TIMEOUT: String(LIMIT_SECONDS) }
      const env = { ...process.env, ...limit, ...variables, ...server.env, TMPDIR: folder }
      const left = [...files]
      let failed = 0
      const work = async (): Promise<void> => {
        for (let file = left.shift(); file !== undefined; file = left.shift())
          if (!interruption.signal.aborted && !(await run(file, env, interruption.signal))) failed++
      }
      await Promise.all(Array.from({ length: jobs }, work))
      if (interruption.signal.aborted) return
      console.log(`${files.length - failed} passed, ${failed} failed`)
      process.exitCode ??= failed > 0 ? 1 : 0
    } finally {
      await server.stop()
    }
  } finally {
    // Servers of tests that were interrupted may still be stopping.
    await rm(folder, { recursive: true, force: true, maxRetries: 10 })
  }
}

/** Returns whether all tests of a file passed. */
async function run(file: string, env: NodeJS.ProcessEnv, interruption: AbortSignal): Promise<boolean> {
  const compiled = path.join('.test-build', file.replace(/\.ts$/, '.js'))
  const began = performance.now()
  const child = spawn(process.execPath, [...FLAGS, compiled], {
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
    // A process group of its own, so that its end reaches the programs that it has started.
    detached: true,
    timeout: 1000 * LIMIT_SECONDS,
    killSignal: 'SIGKILL',
  })
  const end = (): void => endGroup(child)
  interruption.addEventListener('abort', end)
  const output = text(child.stdout)
  const [code] = await once(child, 'exit')
  interruption.removeEventListener('abort', end)
  end()
  if (code !== 0) console.log(failuresIn(await output))
  const seconds = Math.round((performance.now() - began) / 1000)
  console.log(`${code === 0 ? 'ok' : 'not ok'} ${file} # ${seconds} s`)
  return code === 0
}

/** Everything in the output of a file that has not passed. */
function failuresIn(tap: string): string {
  return tap
    .split('\n')
    .filter((line) => !/^ *($|ok \d|# Subtest|1\.\.\d|TAP version)/.test(line))
    .join('\n')
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
