import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { chown, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import path from 'node:path'
import type { Test } from 'tap'
import { serverAccount } from '../../src/local/server-process.ts'
import { run, temporaryFolder } from './program.ts'

/** Gives a file or folder to the account that servers run as, if that is another one. */
export async function giveToServer(target: string): Promise<void> {
  const { uid, gid } = serverAccount()
  if (uid !== undefined && gid !== undefined) await chown(target, uid, gid)
}

interface OtherProgramOptions {
  readonly args: readonly string[]
  /** What is in the file that is the last argument. */
  readonly config: string
  /** What its output has when it is ready. */
  readonly ready: RegExp
}

/** Starts a program of another project under an account that is not root's, and waits until it is ready. */
export async function startOtherProgram(t: Test, name: string, { args, config, ready }: OtherProgramOptions) {
  const file = path.join(await temporaryFolder(t), `${name}.conf`)
  await writeFile(file, config, { mode: 0o600 })
  await giveToServer(file)
  const program = run(t, name, [...args, file], { ...serverAccount(), env: process.env })
  await program.output(ready)
  return program
}

/**
 * A port of 127.0.0.1 that nobody listens on. It is below those that Linux gives to outgoing connections, one of which could take
 * it before the test uses it.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(10_000, 32_000)
    try {
      const server = createServer().listen(port, '127.0.0.1')
      await once(server, 'listening')
      server.close()
      return port
    } catch {
      // It is in use.
    }
  }
}
