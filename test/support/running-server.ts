import type { Test } from 'tap'
import { callerOf, type Send } from './http.ts'
import { type Outcome, type Program, portOf, startProgram } from './program.ts'

/** The key that `send` presents by default. */
export const apiKey = 'a-key-for-tests-0123456789abcdefghijklm'

/** The server as it ships, in a process of its own. */
export interface RunningServer extends Program {
  readonly port: number
  /** Sends a request with the key. */
  readonly send: Send
  /** Sends SIGTERM and returns what the server did until it ended. */
  stop(): Promise<Outcome>
}

/** Starts the server on a free port, with a key and the given environment. */
export async function startServer(t: Test, env: Record<string, string>): Promise<RunningServer> {
  const program = await startProgram(t, 'server', { env: { API_KEYS: apiKey, PORT: '0', ...env } })
  const port = await portOf(program)
  return {
    ...program,
    port,
    send: callerOf(port, { authorization: `Bearer ${apiKey}` }),
    stop() {
      program.process.kill('SIGTERM')
      return program.ended
    },
  }
}
