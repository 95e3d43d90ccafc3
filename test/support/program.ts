import { type SpawnOptions, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { Agent } from 'node:http'
import { tmpdir } from 'node:os'
import path from 'node:path'
import type { Test } from 'tap'
import { createSender, type Send } from './http.ts'

/** Where a program is, compiled with the tests. */
export const programFile = (name: 'server' | 'cli'): string => path.resolve(`.test-build/src/${name}.js`)

/** A warning of Node, which a program must not print beside its own lines. */
export const NODE_WARNING = /^\(node:\d+\) .*Warning: .*$/m

/** What a program did until it ended. */
export interface Outcome {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

/** A program that runs as a process of its own. */
export type Program = ReturnType<typeof run>

export interface ProgramOptions {
  readonly args?: string[]
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
  /** What it reads on standard input; undefined for an empty one, null for one that stays open. */
  readonly input?: string | Buffer | null | undefined
}

/**
 * Starts a program with no other environment than what it needs to run and what is given, in an empty folder
 * unless told otherwise. It does not outlive the test.
 */
export async function startProgram(
  t: Test,
  name: 'server' | 'cli',
  { args = [], env = {}, cwd, input }: ProgramOptions = {},
): Promise<Program> {
  return run(t, process.execPath, [programFile(name), ...args], {
    cwd: cwd ?? (await temporaryFolder(t)),
    env: { PATH: process.env['PATH'] ?? '', ...env },
    input,
  })
}

/** Starts a command. It does not outlive the test, which fails if Node prints a warning. */
export function run(
  t: Test,
  command: string,
  args: readonly string[],
  { input, ...options }: SpawnOptions & Pick<ProgramOptions, 'input'> = {},
) {
  const child = spawn(command, args, { ...options, stdio: ['pipe', 'pipe', 'pipe'] })
  // A program that ends before it has read everything breaks the pipe.
  child.stdin.on('error', () => {})
  if (input !== null) child.stdin.end(input)
  let stdout = ''
  let stderr = ''
  child.stdout.on('data', (chunk) => (stdout += chunk))
  child.stderr.on('data', (chunk) => (stderr += chunk))
  const ended = once(child, 'close').then(([code, signal]): Outcome => ({ code, signal, stdout, stderr }))
  t.teardown(async () => {
    child.kill('SIGKILL')
    // A program that is missing fails the test that started it, not what comes after.
    await ended.catch(() => {})
    const [warning] = NODE_WARNING.exec(stderr) ?? []
    if (warning !== undefined) throw new Error(`${command} ${args.join(' ')} printed ${warning}`)
  })
  return {
    process: child,
    ended,
    /** Resolves with the match once the output has it; rejects when the program ends without. */
    output: (pattern: RegExp) =>
      new Promise<RegExpMatchArray>((resolve, reject) => {
        const look = (): void => {
          const match = pattern.exec(stdout + stderr)
          if (match === null) return
          // Once found, later output must not be searched.
          child.stdout.off('data', look)
          child.stderr.off('data', look)
          resolve(match)
        }
        child.stdout.on('data', look)
        child.stderr.on('data', look)
        look()
        ended.then(() => reject(new Error(`It ended without ${pattern}:\n${stdout}\n${stderr}`)), reject)
      }),
  }
}

/** A folder with these files that goes away with the test. Others may enter it, so that a server under another account can. */
export async function temporaryFolder(
  t: Pick<Test, 'teardown'>,
  files: Readonly<Record<string, string | Buffer>> = {},
): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'petstore-inventory-'))
  await chmod(folder, 0o755)
  t.teardown(() => rm(folder, { recursive: true, force: true }))
  for (const [name, content] of Object.entries(files)) await writeFile(path.join(folder, name), content)
  return folder
}

/** The port in the line with which the server says where it listens. */
export async function readPort(program: Program): Promise<number> {
  const [, port] = await program.output(/listening at http:\/\/[^:]+:(\d+)/i)
  return Number(port)
}

/** The key that `send` presents by default. */
export const apiKey = 'a-key-for-tests-0123456789abcdefghijklm'

/** Returns what sends requests with the key over connections that stay open until the test ends, one by default. */
export function persistentCaller(t: Test, port: number, connections = 1): Send {
  const agent = new Agent({ keepAlive: true, maxSockets: connections })
  t.teardown(() => agent.destroy())
  return createSender(port, { authorization: `Bearer ${apiKey}` }, agent)
}

/** Starts the server as it ships on a free port, with a key and the given environment. */
export async function startServer(t: Test, env: Record<string, string>) {
  const program = await startProgram(t, 'server', { env: { API_KEYS: apiKey, PORT: '0', ...env } })
  const port = await readPort(program)
  return {
    ...program,
    port,
    /** Sends a request with the key. */
    send: createSender(port, { authorization: `Bearer ${apiKey}` }),
    /** Sends SIGTERM and returns what the server did until it ended. */
    stop(): Promise<Outcome> {
      program.process.kill('SIGTERM')
      return program.ended
    },
  }
}

/** What a process uses, as Linux counts it: memory in megabytes, and open files, sockets among them. Undefined without /proc. */
export async function readUsage(pid: number | undefined) {
  try {
    const status = await readFile(`/proc/${pid}/status`, 'utf8')
    const files = await readdir(`/proc/${pid}/fd`)
    return { memory: Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024, files: files.length }
  } catch {
    return undefined
  }
}
