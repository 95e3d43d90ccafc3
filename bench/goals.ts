import type { ContenderName } from './cases.ts'
import type { Results } from './results.ts'

/** A ratio between two contenders that a run should reach. */
interface Goal {
  readonly work: string
  readonly caseName: string
  readonly contender: ContenderName
  readonly against: ContenderName
  /** Minimum ratio of the throughputs, or maximum ratio of the median times. */
  readonly atLeast?: number
  readonly atMost?: number
}

const goals: readonly Goal[] = [
  {
    work: 'list, 64 connections, against plain Fastify',
    caseName: 'list-64',
    contender: 'service',
    against: 'plain',
    atLeast: 20,
  },
  {
    work: 'list, 64 connections, against node:http',
    caseName: 'list-64',
    contender: 'service',
    against: 'node-http',
    atLeast: 0.5,
  },
  {
    work: 'update, 64 connections, against plain Fastify',
    caseName: 'update-64',
    contender: 'service',
    against: 'plain',
    atLeast: 2.3,
  },
  {
    work: 'update, 64 connections, against pg alone',
    caseName: 'update-64',
    contender: 'service',
    against: 'direct',
    atLeast: 1,
  },
  {
    work: 'list, one connection, median time against plain Fastify',
    caseName: 'list-1',
    contender: 'service',
    against: 'plain',
    atMost: 1,
  },
  {
    work: 'update, one connection, median time against plain Fastify',
    caseName: 'update-1',
    contender: 'service',
    against: 'plain',
    atMost: 1,
  },
  {
    work: 'mix, 64 connections, against plain Fastify',
    caseName: 'mix',
    contender: 'service',
    against: 'plain',
    atLeast: 8,
  },
  {
    work: 'mix, 64 connections, against Go (--peers)',
    caseName: 'mix',
    contender: 'service',
    against: 'go',
    atLeast: 4.5,
  },
  {
    work: '1,000 entries, one client right after a change, against plain Fastify',
    caseName: 'after-change-1000',
    contender: 'service',
    against: 'plain',
    atLeast: 2,
  },
  {
    work: '100,000 entries, one client right after a change, time against COPY of the same text',
    caseName: 'after-change-100000',
    contender: 'service',
    against: 'copy',
    atMost: 0.25,
  },
  {
    work: '1,000,000 entries, one client right after a change, time against COPY of the same text',
    caseName: 'after-change-1000000',
    contender: 'service',
    against: 'copy',
    atMost: 0.25,
  },
  {
    work: 'list, 64 connections, with 1,000 commits per second in another database, against none',
    caseName: 'with-commits',
    contender: 'service-commits',
    against: 'service',
    atLeast: 0.8,
  },
  {
    work: '1,000,000 entries, unchanged, against node:http sending the same bytes',
    caseName: 'unchanged-1000000',
    contender: 'service',
    against: 'node-http',
    atLeast: 0.5,
  },
]

/** A goal as text, and its outcome. */
export interface Outcome {
  readonly work: string
  readonly goal: string
  /** NaN if one of the two contenders could not be measured. */
  readonly reached: number
  readonly met: boolean
}

/** Returns the outcome of each goal whose case was part of the run. */
export function outcomes(results: Results): Outcome[] {
  const measured = goals.filter(({ caseName }) => results.cases.some(({ name }) => name === caseName))
  return measured.map(({ work, caseName, contender, against, atLeast, atMost }) => {
    const reached = results.ratio(caseName, contender, against, atMost === undefined ? 'perSecond' : 'p50')
    return {
      work,
      goal: atMost === undefined ? `at least ${atLeast}` : `at most ${atMost}`,
      reached,
      met:
        reached >= (atLeast ?? Number.NEGATIVE_INFINITY) && reached <= (atMost ?? Number.POSITIVE_INFINITY),
    }
  })
}
