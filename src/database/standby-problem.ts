import pg from 'pg'
import { causeOf, ServerChangedError } from './errors.ts'

/** Why a standby cannot be read, in words that complete the sentence "The standby is not used: …". */
export const standbyProblems = {
  unreachable: 'it cannot be reached or cannot answer',
  not_standby: 'it is not a standby: the server accepts writes',
  other_cluster: 'it belongs to another database cluster than the primary',
  other_timeline:
    'it is not known to follow the primary’s timeline; after a failover, its next restartpoint shows whether it does',
  other_table: 'its address leads to another database or another table than that of the primary',
  unverified:
    'the servers cannot say which cluster and timeline they belong to; both roles must be allowed to run pg_control_system(), pg_control_checkpoint() and pg_control_recovery()',
  lagging: 'it does not replay within 2 seconds what the primary has written',
  ahead:
    'it shows commits that the primary does not show yet, as those do that wait for a synchronous standby',
  unsuited: 'the table cannot be read there exactly, such as a foreign, a partitioned or an unlogged one',
  conflict: 'the read conflicted with recovery',
  interrupted: 'the connection was replaced in the middle of the read',
} as const

export type StandbyProblem = keyof typeof standbyProblems

/** The standby cannot be read now, so the read must use the primary. */
export class StandbyError extends Error {
  override readonly name = 'StandbyError'
  readonly problem: StandbyProblem

  constructor(problem: StandbyProblem, options?: ErrorOptions) {
    super(standbyProblems[problem], options)
    this.problem = problem
  }
}

/** SQLSTATE codes of statements that conflict with recovery: serialization failure, deadlock, lock_timeout. */
const conflictStates = ['40001', '40P01', '55P03']

/** SQLSTATE of a statement that a server in recovery does not support, such as a read of an unlogged table. */
const UNSUPPORTED_STATE = '0A000'

/** Converts the error of a statement on a standby to a StandbyError with one of the problems. */
export function standbyErrorOf(error: unknown): StandbyError {
  const cause = causeOf(error)
  if (cause instanceof StandbyError) return cause
  if (cause instanceof ServerChangedError) return new StandbyError('interrupted', { cause })
  // With several hosts, the primary may be one of them, so `not_standby` is reported only if no host has another problem.
  const causes: readonly unknown[] = cause instanceof AggregateError ? cause.errors : [cause]
  const errors = causes.filter((one) => one instanceof StandbyError)
  const reported = errors.find(({ problem }) => problem !== 'not_standby') ?? errors[0]
  if (reported !== undefined && errors.length === causes.length) return reported
  return new StandbyError(cause instanceof pg.DatabaseError ? problemByState(cause.code) : 'unreachable', {
    cause,
  })
}

function problemByState(code = ''): StandbyProblem {
  if (conflictStates.includes(code)) return 'conflict'
  return code === UNSUPPORTED_STATE ? 'unsuited' : 'unreachable'
}
