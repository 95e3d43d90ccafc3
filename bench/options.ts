import { Command, InvalidArgumentError } from 'commander'
import { type Case, cases, withPeers } from './cases.ts'

/** The options of a run. */
export interface Options {
  readonly cases: readonly Case[]
  readonly rounds: number
  /** Duration of one measurement: one contender in one round of a case. */
  readonly seconds: number
  /** The folder for the results; undefined if they are only printed. */
  readonly output: string | undefined
}

/** The cases of a short run: one or two of every kind. */
const quickCases = ['list-64', 'update-64', 'mix', 'if-none-match', 'unchanged-100000', 'after-change-100000']

const help = `
Cases: ${cases.map(({ name }) => name).join(', ')}

Examples:
  npm run bench                                  measure everything, into bench/RESULTS.md
  npm run bench -- --quick                       check that everything works, within a minute
  npm run bench -- --only list update-64 --rounds 5 --seconds 10
  CITUS_BIN=/path/to/bin npm run bench -- --only citus
                                                 compare Citus with one PostgreSQL
  npm run bench -- --only update --peers         compare updates with a server in Go, too`

/** Parses the command line; on an error, exits with a message. */
export function readOptions(args: readonly string[]): Options {
  const command = new Command('npm run bench --')
    .description('compare the service with its alternatives, and write bench/RESULTS.md')
    .option('--rounds <count>', 'measure each contender this many times', readCount, 3)
    .option('--seconds <count>', 'measure for this long each time', readCount, 3)
    .option(
      '--only <case...>',
      'measure only these cases, or all of "list", "update" and so on; write no file',
    )
    .option('--quick', 'measure a few cases once, for a second each; write no file')
    .option('--peers', 'also measure a server in Go, which must be installed')
    .option('--output <folder>', 'write RESULTS.md and throughput.svg to this folder')
    .addHelpText('after', help)
    .parse(args, { from: 'user' })
  const { rounds, seconds, only, quick, peers, output } = command.opts<{
    rounds: number
    seconds: number
    only?: string[]
    quick?: true
    peers?: true
    output?: string
  }>()
  const chosen = cases.filter(
    (given) =>
      (!only || only.some((text) => isNamed(given, text))) && (!quick || quickCases.includes(given.name)),
  )
  if (chosen.length === 0)
    command.error(`error: unknown case; the cases are ${cases.map(({ name }) => name).join(', ')}`)
  return {
    cases: peers ? withPeers(chosen) : chosen,
    rounds: quick ? 1 : rounds,
    seconds: quick ? 1 : seconds,
    output: output ?? (only || quick ? undefined : 'bench'),
  }
}

function isNamed({ name }: Case, text: string): boolean {
  return name === text || name.startsWith(`${text}-`)
}

function readCount(text: string): number {
  if (!/^[1-9]\d{0,3}$/.test(text)) throw new InvalidArgumentError('It must be a whole number from 1.')
  return Number(text)
}
