import pg from 'pg'
import { type Blame, classify, findCause, isInFunction, type Outcome, type Reason } from './causes.ts'
import { toMessage } from './operator-error.ts'

/**
 * A statement failed, or the connection for it could not be opened. It is made once, where the statement ended. The message is that of
 * the original error, which is the `cause`, for logs only.
 */
export class StatementError extends Error {
  override readonly name = 'StatementError'
  readonly outcome: Outcome
  readonly reason: Reason
  readonly blame: Blame
  /** Whether a function or trigger of the operator's own failed. */
  readonly isInFunction: boolean

  constructor(cause: unknown, outcome: Outcome, reason = classify(cause, outcome)) {
    super(toMessage(cause), { cause })
    this.outcome = outcome
    this.reason = reason
    this.blame = findCause(reason).blame
    this.isInFunction = cause instanceof pg.DatabaseError && isInFunction(cause)
  }

  /** The cause of a 503, for the log and the metrics; undefined if the values, the statement or a function are wrong. */
  get unavailable(): string | undefined {
    const { logged } = findCause(this.reason)
    if (logged === null) return undefined
    return logged ?? (this.outcome === 'rolledBack' ? 'database_error' : 'database_unreachable')
  }

  /** The message with its details, such as the row that violates a constraint. */
  get detailedMessage(): string {
    const { detail = '' } = this.cause instanceof pg.DatabaseError ? this.cause : {}
    return detail === '' ? this.message : `${this.message} (${detail.replace(/\.$/, '')})`
  }
}

/** Whether a statement failed for one of these reasons. */
export function hasReason(error: unknown, ...reasons: readonly Reason[]): error is StatementError {
  return error instanceof StatementError && reasons.includes(error.reason)
}

/** Returns the StatementError for an error of pg; as it is, an error that a statement does not cause. */
export function toStatementError(error: unknown, outcome: Outcome): unknown {
  if (error instanceof StatementError || !(error instanceof Error)) return error
  // pg throws a plain Error for every failure of a connection, and a subclass for an incorrect call.
  return /^(Type|Range|Syntax)Error$/.test(error.name) ? error : new StatementError(error, outcome)
}
