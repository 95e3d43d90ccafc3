import { type Case, type ContenderName, contenderNames, toName } from './cases.ts'
import type { Sample } from './contenders.ts'

/** A sample with the CPU time per response, in microseconds. */
export interface Measured extends Sample {
  readonly cpuUs: number
  readonly databaseCpuUs: number
}

/** The samples of each contender of a case, one for each round. */
export type Results = ReadonlyMap<Case, ReadonlyMap<ContenderName, readonly Measured[]>>

/** Returns the median of the ratios of each round: a slow moment of the machine affects both contenders of a round. */
function ratio(samples: readonly Measured[], against: readonly Measured[]): number {
  return median(samples.map(({ perSecond }, round) => perSecond / (against[round]?.perSecond ?? Number.NaN)))
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN
}

/** Returns the results as a table. */
export function report(results: Results): string {
  const rows = [HEAD, HEAD.map((_, column) => (column < 2 ? '---' : '--:'))]
  for (const [benchCase, samples] of results) {
    const service = samples.get('service') ?? []
    for (const contender of benchCase.contenders) {
      const ofContender = samples.get(contender) ?? []
      const middle = (key: keyof Measured): string => figure(median(ofContender.map((sample) => sample[key])))
      rows.push([
        toName(benchCase),
        contenderNames[contender],
        middle('perSecond'),
        middle('p50'),
        middle('p99'),
        middle('cpuUs'),
        middle('databaseCpuUs'),
        String(ofContender.reduce((sum, { errors }) => sum + errors, 0)),
        contender === 'service' ? '' : figure(ratio(service, ofContender)),
      ])
    }
  }
  return rows.map((cells) => `| ${cells.join(' | ')} |`).join('\n')
}

const HEAD = [
  'Case',
  'Contender',
  'per second',
  'p50 ms',
  'p99 ms',
  'CPU µs',
  'database CPU µs',
  'errors',
  'service is ×',
]

/** Three digits are already more than the noise of a run justifies. */
export function figure(value: number): string {
  return Number.isNaN(value) ? '' : value.toLocaleString('en', { maximumSignificantDigits: 3 })
}
