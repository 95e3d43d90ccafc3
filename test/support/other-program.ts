import { spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { chmod, writeFile } from 'node:fs/promises'
import path from 'node:path'
import type { Test } from 'tap'
import { freePort as probePort } from '../../src/local/free-port.ts'
import { pathOf } from '../faults/needs.ts'
import { giveTo, serverAccount } from './account.ts'
import { temporaryFolder } from './program.ts'

/** A program of another project that runs beside the service. */
export interface OtherProgram {
  /** Ends it. */
  stop(): Promise<void>
}

/**
 * Starts a program with a configuration file as the last argument, under an account that is not root's, and waits until
 * its output says that it is ready. It does not outlive the test.
 */
export async function startOtherProgram(
  t: Test,
  name: string,
  {
    args,
    config,
    ready,
    env = {},
  }: { args: string[]; config: string; ready: RegExp; env?: Record<string, string> },
): Promise<OtherProgram> {
  const program = await pathOf(name)
  if (program === undefined)
    throw new Error(`${name} is not installed; "npm run test:faults" says what is missing.`)
  const account = serverAccount()
  const file = path.join(await temporaryFolder(t), `${name}.conf`)
  await chmod(path.dirname(file), 0o711)
  await writeFile(file, config, { mode: 0o600 })
  await giveTo(account, file)
  const child = spawn(program, [...args, file], {
    ...account,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const ended = once(child, 'close')
  const stop = async (): Promise<void> => {
    child.kill('SIGKILL')
    await ended
  }
  t.teardown(stop)
  await new Promise<void>((resolve, reject) => {
    let output = ''
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk) => {
        output += chunk
        if (ready.test(output)) resolve()
      })
    }
    ended.then(() => reject(new Error(`${name} has ended:\n${output}`)), reject)
  })
  return { stop }
}

/**
 * A port of 127.0.0.1 that nobody listens on. It is below those that Linux gives to outgoing connections, one of which could take
 * it before the test uses it.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(10_000, 32_000)
    try {
      return await probePort('127.0.0.1', port)
    } catch {
      // It is in use.
    }
  }
}
