import { readFile } from 'node:fs/promises'
import path from 'node:path'
import type { Test } from 'tap'
import { callerOf, type Send } from './http.ts'
import { type Program, portOf, startProgram } from './program.ts'

/** A server with a local database. */
export interface LocalServer {
  readonly server: Program
  /** The key that its welcome shows. */
  readonly key: string
  /** Sends a request with that key. */
  readonly send: Send
  /** The first line that it has printed. */
  readonly firstLine: string
}

/** Starts the server without a database, and waits for its welcome. */
export async function startLocally(
  t: Test,
  cwd: string,
  env: Record<string, string> = {},
): Promise<LocalServer> {
  const server = await startProgram(t, 'server', { cwd, env: { PORT: '0', ...env } })
  const welcome = /^(.*)\n[\s\S]*Authorization: Bearer (\S+)'[\s\S]*Ctrl-C stops both/
  const [, firstLine = '', key = ''] = await server.output(welcome)
  const send = callerOf(await portOf(server), { authorization: `Bearer ${key}` })
  return { server, key, send, firstLine }
}

/** Stops the server as Ctrl-C does, and returns its exit code. */
export async function stopLocally({ server }: LocalServer): Promise<number | null> {
  server.process.kill('SIGINT')
  return (await server.ended).code
}

/** The first process of the database below a folder. PostgreSQL removes the file that names it when it stops. */
export async function serverProcess(cwd: string): Promise<number | undefined> {
  const file = path.join(cwd, '.data', 'postgres', 'data', 'postmaster.pid')
  const [pid] = (await readFile(file, 'utf8').catch(() => '')).split('\n')
  return pid ? Number(pid) : undefined
}

export function isRunning(pid: number | undefined): boolean {
  try {
    return pid !== undefined && process.kill(pid, 0)
  } catch {
    return false
  }
}
