/** Runs commands one after the other in this process, for the parent that sends them. */
import { Readable } from 'node:stream'
import { runCommand } from '../../src/cli/run.ts'
import type { Command } from './command.ts'

/** Has what a command writes to a stream added to the text that is returned. */
function capture(stream: NodeJS.WriteStream): () => string {
  const pieces: Buffer[] = []
  stream.write = (chunk: string | Uint8Array, encoding?: unknown, done?: unknown): boolean => {
    pieces.push(Buffer.from(chunk))
    const callback = typeof encoding === 'function' ? encoding : done
    if (typeof callback === 'function') process.nextTick(callback)
    return true
  }
  return () => Buffer.concat(pieces.splice(0)).toString()
}

// Each command adds listeners, as if it were the only one in its process.
for (const emitter of [process, process.stdout, process.stderr]) emitter.setMaxListeners(0)

const stdout = capture(process.stdout)
const stderr = capture(process.stderr)

process.on('message', async ({ args, env, cwd, input }: Command) => {
  process.env = { ...env }
  process.chdir(cwd)
  process.exitCode = undefined
  Object.defineProperty(process, 'stdin', { value: Readable.from([Buffer.from(input)]), configurable: true })
  await runCommand(args)
  process.send?.({ code: process.exitCode ?? 0, signal: null, stdout: stdout(), stderr: stderr() })
  process.exitCode = undefined
})
