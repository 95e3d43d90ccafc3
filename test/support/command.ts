import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import type { Test } from 'tap'
import { type Outcome, startProgram, temporaryFolder } from './program.ts'

/** What a command gets. */
export interface Command {
  readonly args: readonly string[]
  readonly env: Readonly<Record<string, string>>
  readonly cwd: string
  readonly input: string
}

const idleHosts: ChildProcess[] = []

/**
 * Runs a command as `dist/cli.js` does, with no other environment than what is given, in an empty folder unless told otherwise.
 * One process runs many commands, as a start takes longer than most of them. For signals, pipes and terminals, see
 * `startProgram`.
 */
export async function runCommand(
  t: Test,
  args: readonly string[],
  { env = {}, cwd, input = '' }: Partial<Command> = {},
): Promise<Outcome> {
  // Options of Node need a process of their own.
  const command = { env, cwd: cwd ?? (await temporaryFolder(t)), input }
  if ('NODE_OPTIONS' in env) return (await startProgram(t, 'cli', { args: [...args], ...command })).ended
  return runInHost({ args, ...command })
}

/** Runs a command on a database. */
export async function inventory(t: Test, url: string, ...args: string[]): Promise<Outcome> {
  return runCommand(t, args, { env: { DATABASE_URL: url } })
}

/** Runs a command on a database, which must succeed, and returns what it prints. */
export async function succeed(t: Test, url: string, ...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await inventory(t, url, ...args)
  if (code !== 0) throw new Error(`${args.join(' ')}: exit code ${code}, ${stderr}`)
  return stdout.trim()
}

/** Imports lines of CSV with a petId, a quantity and a status, which must succeed. */
export async function importLines(t: Test, url: string, mode: string, ...lines: string[]): Promise<void> {
  const args = ['import', '-', '--rows', String(lines.length), '--allow-removals', '--mode', mode]
  const input = `${['petId,quantity,status', ...lines].join('\n')}\n`
  t.match(await runCommand(t, args, { env: { DATABASE_URL: url }, input }), { code: 0 })
}

async function runInHost(command: Command): Promise<Outcome> {
  const host = idleHosts.pop() ?? startHost()
  host.channel?.ref()
  host.send(command)
  const [outcome] = await once(host, 'message')
  host.channel?.unref()
  idleHosts.push(host)
  return outcome
}

/** The process ends with this one, and does not keep it running. */
function startHost(): ChildProcess {
  const host = fork(path.join(import.meta.dirname, 'command-host.js'), [path.resolve('dist')], {
    env: { PATH: process.env['PATH'] },
    execArgv: [],
  })
  // Otherwise, whoever has sent a command that ends its process would wait for ever.
  host.once('disconnect', () => host.emit('error', new Error('A command ended its process')))
  host.unref()
  host.channel?.unref()
  return host
}
