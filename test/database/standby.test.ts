import t from 'tap'
import { DatabaseUnavailableError } from '../../src/database/errors.ts'
import { problemOf } from '../../src/database/standby-identity.ts'
import { StandbyError, standbyErrorOf } from '../../src/database/standby-problem.ts'

t.test('only a standby of the same cluster on the same timeline is read', async (t) => {
  const primary = { systemIdentifier: '7', timeline: 3, startedAt: '1' }
  const standby = { isStandby: true, systemIdentifier: '7', timeline: 3 }
  t.equal(problemOf(standby, primary), undefined)
  t.equal(problemOf({ ...standby, isStandby: false }, primary), 'not_standby')
  t.equal(problemOf({ ...standby, systemIdentifier: '8' }, primary), 'other_cluster')
  t.equal(problemOf({ ...standby, timeline: 2 }, primary), 'other_timeline')
  t.equal(problemOf({ ...standby, timeline: 4 }, primary), 'other_timeline')
  t.equal(problemOf(standby, undefined), 'unverified')
})

t.test('of several hosts, the problem of one that should be a standby is reported', async (t) => {
  const errors = (['not_standby', 'other_cluster', 'not_standby'] as const).map(
    (one) => new StandbyError(one),
  )
  const reported = (causes: readonly Error[]): string =>
    standbyErrorOf(new DatabaseUnavailableError(new AggregateError(causes))).problem
  t.equal(reported(errors), 'other_cluster')
  t.equal(reported(errors.slice(2)), 'not_standby')
  t.equal(reported([...errors, new Error('connect ECONNREFUSED')]), 'unreachable')
})
