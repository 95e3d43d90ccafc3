import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import type { Test } from 'tap'
import {
  type Outcome,
  type ProgramOptions,
  programFile,
  run,
  startProgram,
  temporaryFolder,
} from './program.ts'

/** What a command gets. */
export interface Command {
  readonly args: readonly string[]
  readonly env: Readonly<Record<string, string>>
  readonly cwd: string
  readonly input: string
}

const idleHosts: ChildProcess[] = []

/** The words of a command, or a line with them that has no other space. */
type Words = string | readonly string[]

const toWords = (command: Words): string[] =>
  typeof command === 'string' ? command.split(' ').filter(Boolean) : [...command]

/**
 * Runs a command with no other environment than what is given, in an empty folder unless `cwd` names another.
 * One process runs many commands, as a start takes longer than most of them. For signals, pipes and terminals, see
 * `startProgram`.
 */
export async function runCommand(
  t: Test,
  words: Words,
  { env = {}, cwd, input = '' }: Partial<Command> = {},
): Promise<Outcome> {
  const command: Command = { args: toWords(words), env, cwd: cwd ?? (await temporaryFolder(t)), input }
  const host = idleHosts.pop() ?? startHost()
  host.channel?.ref()
  host.send(command)
  const [outcome] = await once(host, 'message')
  host.channel?.unref()
  idleHosts.push(host)
  return outcome
}

/** Runs a command on a database. */
export const inventory = (t: Test, url: string, command: Words, options: Partial<Command> = {}) =>
  runCommand(t, command, { env: { DATABASE_URL: url }, ...options })

/** Starts a command on a database as a process of its own. */
export const startCommand = (t: Test, url: string, command: Words, options: ProgramOptions = {}) =>
  startProgram(t, 'cli', { args: toWords(command), env: { DATABASE_URL: url }, ...options })

/** Runs a line of bash in which `inventory` is the command line. */
export function runBash(t: Test, line: string, { env, ...options }: Omit<ProgramOptions, 'args'>) {
  const programs = { NODE: process.execPath, CLI: programFile('cli') }
  return run(t, 'bash', ['--norc', '-c', `inventory() { "$NODE" "$CLI" "$@"; }; ${line}`], {
    ...options,
    env: { PATH: process.env['PATH'], ...programs, ...env },
  }).ended
}

/** Runs a command on a database, which must succeed, and returns what it prints. */
export async function succeed(t: Test, url: string, command: string): Promise<string> {
  const { code, stdout, stderr } = await inventory(t, url, command)
  if (code !== 0) throw new Error(`${command}: exit code ${code}, ${stderr}`)
  return stdout.trim()
}

/** The process ends with this one, and does not keep it running. */
function startHost(): ChildProcess {
  const host = fork(path.join(import.meta.dirname, 'command-host.js'), {
    env: { PATH: process.env['PATH'] },
    execArgv: [],
  })
  // Without an error, a test whose command ends the process would wait for ever.
  host.once('disconnect', () => host.emit('error', new Error('A command ended its process')))
  host.unref()
  host.channel?.unref()
  return host
}
