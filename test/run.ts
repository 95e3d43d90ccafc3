/**
 * Runs the tests of a kind, which is the first argument: `test` for those that need only Node, `nightly` for those of them that take
 * too long for every change, `fault` for those that need other programs, and `browser`. Further arguments name files or folders.
 *
 * Each file is a process of its own, so the PostgreSQL server that all use, found or started here, belongs to their parent. Prints a
 * line for each file, and before that of one that fails everything in it that has not passed. The exit code says how it went.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdtemp, readdir, readFile, rm, stat, statfs } from 'node:fs/promises'
import { availableParallelism, tmpdir } from 'node:os'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { chooseBalancer } from './support/containers.ts'
import { NODE_WARNING } from './support/program.ts'
import { startTestServer } from './support/server.ts'

/** How long a file may take, in seconds: more than on any machine, unless it hangs. */
const LIMIT_SECONDS = 3600

/** More than all clusters of a run that exist at the same time. */
const NEEDED_BYTES = 3e9

// Node 20 warns of the mocked timers.
const FLAGS = ['--enable-source-maps', '--disable-warning=ExperimentalWarning']

const [kind, ...args] = process.argv.slice(2)
const names = args.map((name) => name.replace(/\/$/, ''))
const files = (await readdir('test', { recursive: true }))
  .filter((file) => file.endsWith(`.${kind}.ts`))
  .map((file) => path.join('test', file))
const isNamed = (file: string, name: string): boolean =>
  file === name || file.startsWith(`${name}/`) || path.basename(file) === name
const unknown = names.filter((name) => !files.some((file) => isNamed(file, name)))
if (unknown.length > 0) throw new Error(`There is no test ${unknown.join(' or ')}`)
const chosen = files.filter((file) => names.length === 0 || names.some((name) => isNamed(file, name)))
// The largest first, as they take the longest: one that began last would run alone.
const sizes = new Map(await Promise.all(chosen.map(async (file) => [file, (await stat(file)).size] as const)))
chosen.sort((one, other) => (sizes.get(other) ?? 0) - (sizes.get(one) ?? 0))
// Debian puts HAProxy and PgBouncer into a folder that only root has on its PATH.
process.env['PATH'] += `${path.delimiter}/usr/sbin`
// Many of the tests wait for time to pass; but what other programs break must not fail another one.
const jobs = kind === 'test' || kind === 'nightly' ? 3 * availableParallelism() : 1
const variables = kind === 'fault' ? await chooseBalancer() : {}

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
    const left = chosen.values()
    let failed = 0
    const work = async (): Promise<void> => {
      for (const file of left) if (!interruption.signal.aborted && !(await run(file, env))) failed++
    }
    await Promise.all(Array.from({ length: jobs }, work))
    if (!interruption.signal.aborted) console.log(`${chosen.length - failed} passed, ${failed} failed`)
    process.exitCode ??= failed > 0 ? 1 : 0
  } finally {
    await server.stop()
  }
} finally {
  // Servers of tests that were interrupted may still be stopping.
  await rm(folder, { recursive: true, force: true, maxRetries: 10 })
}

/**
 * Creates the folder for all files of a run: on Linux in memory, if there is room, and programs may run there, which containers often
 * forbid. A database is hundreds of files, and on a disk, ext4 takes five times as long to create them while others are being removed.
 */
async function makeRunFolder(): Promise<string> {
  const mounts = await readFile('/proc/mounts', 'utf8').catch(() => '')
  const isExecutable = / \/dev\/shm \S+ (?!\S*noexec)/.test(mounts)
  const { bavail, bsize } = await statfs(isExecutable ? '/dev/shm' : '/')
  const parent = isExecutable && bavail * bsize > NEEDED_BYTES ? '/dev/shm' : tmpdir()
  return mkdtemp(path.join(parent, 'petstore-inventory-test-'))
}

/** Returns whether all tests of a file passed. */
async function run(file: string, env: NodeJS.ProcessEnv): Promise<boolean> {
  const compiled = path.join('.test-build', file.replace(/\.ts$/, '.js'))
  const began = performance.now()
  const child = spawn(process.execPath, [...FLAGS, compiled], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
    // A process group of its own, so that its end reaches the programs that it has started.
    detached: true,
    timeout: 1000 * LIMIT_SECONDS,
    killSignal: 'SIGKILL',
  })
  /** Kills its process group, even if the process itself has ended. */
  const end = (): void => {
    try {
      process.kill(-Number(child.pid), 'SIGKILL')
    } catch {
      // It has ended.
    }
  }
  interruption.signal.addEventListener('abort', end)
  const output = text(child.stdout)
  const errors = text(child.stderr)
  const [code] = await once(child, 'exit')
  interruption.signal.removeEventListener('abort', end)
  // Its children write what they have run when they end on their own.
  if ('NODE_V8_COVERAGE' in process.env) await output
  end()
  process.stderr.write(await errors)
  // The service and commands run in this process, too.
  const passed = code === 0 && !NODE_WARNING.test(await errors)
  // Everything that has not passed.
  if (code !== 0)
    console.log((await output).replaceAll(/^ *(ok \d|# Subtest|1\.\.\d|TAP version|$).*\n/gm, ''))
  const seconds = Math.round((performance.now() - began) / 1000)
  console.log(`${passed ? 'ok' : 'not ok'} ${file} # ${seconds} s`)
  return passed
}
