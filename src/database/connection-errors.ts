import pg from 'pg'
import { hasCause } from './error-meaning.ts'
import { causeOf } from './errors.ts'

/**
 * Whether the server refuses the connection or cannot be trusted: the role, its password, the database name, a certificate or a
 * connection pooler is wrong. Waiting does not help.
 */
export function isRefusal(error: unknown): boolean {
  return hasCause(error, 'refused') || isPoolerRefusal(error) || isUntrusted(error)
}

/**
 * Whether a connection pooler, such as PgBouncer or RDS Proxy, refuses or ignores the settings that a session requests in its
 * startup message.
 */
export function isPoolerRefusal(error: unknown): boolean {
  if (hasCause(error, 'settings')) return true
  return (
    error instanceof pg.DatabaseError &&
    /^unsupported startup parameter|support command-line options/.test(error.message)
  )
}

/**
 * Whether the server does not support TLS although its address requires it, or its certificate cannot be verified or is for
 * another host name. The codes are OpenSSL's X.509 errors with Node's names (Node.js manual, TLS).
 */
export function isUntrusted(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  if ('code' in error) return typeof error.code === 'string' && certificateErrors.test(error.code)
  return error.message === 'The server does not support SSL connections'
}

const certificateErrors =
  /^(ERR_TLS_CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|CERT_|HOSTNAME_MISMATCH|INVALID_(CA|PURPOSE))/

/** Whether a server did not respond in time while a connection was being opened. The errors of pg and pg-pool have no code. */
export function isConnectTimeout(error: unknown): boolean {
  return error instanceof Error && connectTimeout.test(error.message)
}

const connectTimeout = /^(timeout expired|Connection terminated due to connection timeout)$/

/** Messages of pg and pg-pool about a response or a connection of the pool that did not come in time. */
const lateness = /^(Query read timeout|timeout exceeded when trying to connect)$/

/** Whether a server that is connected did not respond in time, or all connections were in use. */
export function isLate(error: unknown): boolean {
  const cause = causeOf(error)
  const isReported = hasCause(cause, 'canceled') || hasCause(cause, 'late')
  return isReported || (cause instanceof Error && lateness.test(cause.message))
}
