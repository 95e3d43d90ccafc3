import { Command, InvalidArgumentError } from 'commander'
import { type Case, cases } from './cases.ts'

/** What a run is to measure, and for how long. */
export interface Options {
  readonly cases: readonly Case[]
  readonly rounds: number
  /** Of one contender in one round of a case. */
  readonly seconds: number
  /** Where the results are written; undefined where they are only printed. */
  readonly output: string | undefined
}

/** One or two of every kind. */
const quickCases = [
  'list-64',
  'update-64',
  'mix',
  'if-none-match',
  'workers-update',
  'unchanged-100000',
  'after-change-100000',
]

const help = `
Cases: ${cases.map(({ name }) => name).join(', ')}

Examples:
  npm run bench                                  everything, into bench/RESULTS.md
  npm run bench -- --quick                       whether all of it works, within a minute
  npm run bench -- --only list update-64 --rounds 5 --seconds 10`

/** Reads the command line; a wrong one ends the process with a message. */
export function readOptions(args: readonly string[]): Options {
  const command = new Command('npm run bench --')
    .description('Measures the service beside what else could do its work, and writes bench/RESULTS.md')
    .option('--rounds <count>', 'how often each contender has its turn', readCount, 3)
    .option('--seconds <count>', 'how long a turn is', readCount, 3)
    .option('--only <case...>', 'only these cases, or all of "list", "update" and so on; writes no file')
    .option('--quick', 'one turn of a second in a few cases; writes no file')
    .option('--output <folder>', 'where RESULTS.md and throughput.svg are written')
    .addHelpText('after', help)
    .parse(args, { from: 'user' })
  const { rounds, seconds, only, quick, output } = command.opts<{
    rounds: number
    seconds: number
    only?: string[]
    quick?: true
    output?: string
  }>()
  const chosen = cases.filter(
    (given) =>
      (!only || only.some((text) => isNamed(given, text))) && (!quick || quickCases.includes(given.name)),
  )
  if (chosen.length === 0)
    command.error(`error: there is no such case; they are ${cases.map(({ name }) => name).join(', ')}`)
  return {
    cases: chosen,
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
