import pg from 'pg'
import { causesOf } from './errors.ts'

/** What an error means, beside its message. */
interface Effect {
  /** The server cannot serve now; the statement is correct. */
  readonly isUnavailable: boolean
  /** The server closes the connection, or the state of the session is unknown. */
  readonly isFatal: boolean
}

const UNAVAILABLE: Effect = { isUnavailable: true, isFatal: false }
const FATAL: Effect = { isUnavailable: false, isFatal: true }
const LOST: Effect = { isUnavailable: true, isFatal: true }
const REJECTED: Effect = { isUnavailable: false, isFatal: false }

/** The effects of SQLSTATE codes, or of all that begin alike (PostgreSQL manual, appendix A). Any other code rejects the statement. */
const effects: Readonly<Record<string, Effect>> = {
  '08': LOST, // connection exceptions
  '0A000': UNAVAILABLE, // feature not supported, by Citus or a server that is only compatible with PostgreSQL
  '25006': UNAVAILABLE, // the transaction is read-only, for example after a failover
  '25P03': LOST, // idle_in_transaction_session_timeout
  '25P04': LOST, // transaction_timeout
  '28': LOST, // invalid authorization, which the operator has to fix
  '3D000': LOST, // the database does not exist
  '40001': UNAVAILABLE, // serialization failure
  '40P01': UNAVAILABLE, // deadlock
  '42501': UNAVAILABLE, // the role lacks a privilege for the table
  '42601': UNAVAILABLE, // syntax error: as for 0A000
  '42703': UNAVAILABLE, // a column does not exist: the migrations have not been run
  '42704': UNAVAILABLE, // undefined object, such as a type: as for 0A000
  '42883': UNAVAILABLE, // undefined function: as for 0A000
  '42P01': UNAVAILABLE, // the table does not exist: the migrations have not been run
  '53': LOST, // insufficient resources, such as too many connections
  '55P03': UNAVAILABLE, // lock_timeout
  '57': UNAVAILABLE, // operator intervention, such as the cancellation by statement_timeout
  '57P': LOST, // shutdown or crash
  '58': LOST, // system errors
  XX: FATAL, // internal errors
}

/** Returns what a SQLSTATE means. */
export function effectOf(code: string): Effect {
  return effects[code] ?? effects[code.slice(0, 3)] ?? effects[code.slice(0, 2)] ?? REJECTED
}

/** SQLSTATE codes that callers tell apart. */
const causes = {
  /** The transaction is read-only. */
  readOnly: ['25006'],
  /** A serialization failure or a deadlock. */
  conflict: ['40001', '40P01'],
  /** The statement did not get a lock in time. */
  locked: ['55P03'],
  /** The role lacks a privilege. */
  forbidden: ['42501'],
  /** PostgreSQL canceled the statement, for example after `statement_timeout`. */
  canceled: ['57014'],
  /** The statement does not work on this kind of relation. */
  wrongKind: ['42809'],
  /** An internal error of the server. */
  internal: ['XX000'],
  /** The table does not exist, or is in a schema that the role may not use. */
  unknownTable: ['42P01'],
  unknownColumn: ['42703'],
  /** The server does not support the statement or something in it. */
  unsupported: ['0A000', '42601', '42704', '42883'],
  /** The row violates a unique constraint. */
  duplicate: ['23505'],
  /** The server has no connection left. */
  outOfConnections: ['53300'],
} satisfies Record<string, readonly string[]>

/**
 * Whether PostgreSQL reported an error with this cause, also behind a DatabaseUnavailableError; with several hosts, whether one of
 * them did.
 */
export function hasCause(error: unknown, name: keyof typeof causes): boolean {
  return causesOf(error).some(
    (cause) => cause instanceof pg.DatabaseError && causes[name].includes(cause.code ?? ''),
  )
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
