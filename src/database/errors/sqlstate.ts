import pg from 'pg'
import { causeOf } from './errors.ts'

/** The SQLSTATE of an error that PostgreSQL has reported, also if it is the cause of a DatabaseUnavailableError. */
function stateOf(error: unknown): string | undefined {
  const cause = causeOf(error)
  return cause instanceof pg.DatabaseError ? cause.code : undefined
}

/** SQLSTATE codes with which a server reports that it does not support a statement. */
export const unsupportedStates = [
  '0A000', // feature not supported
  '42601', // syntax error
  '42704', // undefined object, such as a type
  '42883', // undefined function
]

/** Whether this is a serialization failure (SQLSTATE 40001) or a deadlock (40P01). */
export function isConflict(error: unknown): boolean {
  return ['40001', '40P01'].includes(stateOf(error) ?? '')
}

/** Whether PostgreSQL canceled a statement that did not get a lock in time (SQLSTATE 55P03). */
export function isLocked(error: unknown): boolean {
  return stateOf(error) === '55P03'
}

/** Whether the role lacks a privilege (SQLSTATE 42501). */
export function isForbidden(error: unknown): boolean {
  return stateOf(error) === '42501'
}

/** Whether PostgreSQL canceled a statement, for example after `statement_timeout` (SQLSTATE 57014). */
export function isCanceled(error: unknown): boolean {
  return stateOf(error) === '57014'
}

/** Whether the statement does not work on this kind of relation (SQLSTATE 42809). */
export function isWrongKind(error: unknown): boolean {
  return stateOf(error) === '42809'
}

/** Whether this is an internal error of the server (SQLSTATE XX000). */
export function isInternalError(error: unknown): boolean {
  return stateOf(error) === 'XX000'
}

/** Whether a table does not exist, or is in a schema that the role may not use (SQLSTATE 42P01). */
export function isUnknownTable(error: unknown): boolean {
  return stateOf(error) === '42P01'
}

/** Whether a column does not exist (SQLSTATE 42703). */
export function isUnknownColumn(error: unknown): boolean {
  return stateOf(error) === '42703'
}

/** Whether the server does not support a feature that a statement uses (SQLSTATE 0A000, 42601, 42704 or 42883). */
export function isUnsupportedFeature(error: unknown): boolean {
  return unsupportedStates.includes(stateOf(error) ?? '')
}

/**
 * Whether a connection cannot run a named statement again, because the type of a result column has changed since the statement
 * was parsed. PostgreSQL reports this before it runs anything, with the SQLSTATE of unsupported features.
 */
export function isOutdatedStatement(error: unknown): boolean {
  return (
    error instanceof pg.DatabaseError && error.code === '0A000' && error.routine === 'RevalidateCachedQuery'
  )
}

/**
 * Whether PostgreSQL ended the session because it was idle for longer than `idle_session_timeout`. PostgreSQL does this only
 * between two statements, so it has run nothing of one that was sent meanwhile. A function may raise the same SQLSTATE (57P05).
 */
export function isIdleTimeout(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === '57P05' && error.routine === 'ProcessInterrupts'
}

/** Whether a row violates a unique constraint (SQLSTATE 23505). */
export function isDuplicate(error: unknown): boolean {
  return stateOf(error) === '23505'
}

/** Whether the server has no connection left (SQLSTATE 53300); with several hosts, whether one of them has none. */
export function isOutOfConnections(error: unknown): boolean {
  const cause = causeOf(error)
  if (cause instanceof AggregateError) return cause.errors.some(isOutOfConnections)
  return stateOf(cause) === '53300'
}
