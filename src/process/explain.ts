import pg from 'pg'
import type { Reason } from '../database/causes.ts'
import { OperatorError } from '../database/operator-error.ts'
import { StatementError } from '../database/statement-error.ts'

/** How an operator finds out whether a change was made. */
export const HOW_TO_FIND_OUT =
  'To find out, run "inventory migrate status", "inventory keys list --all", or the import again with --dry-run.'

/**
 * Describes an error for the operator in lines: what happened and what to do. Only a bug keeps its stack trace. `variable` is the setting
 * with the address of the database.
 */
export function explain(error: unknown, variable = 'DATABASE_URL'): string[] {
  if (error instanceof OperatorError) return [error.message, ...error.details.map((line) => `  ${line}`)]
  if (error instanceof StatementError) return [explainStatement(error, variable)]
  if (!(error instanceof Error)) return [String(error)]
  // Any other error than that of a system call is a bug.
  if (!('syscall' in error)) return (error.stack ?? error.message).split('\n')
  // The name lookups for databases are causes of a StatementError.
  if (error.syscall !== 'listen' && error.syscall !== 'getaddrinfo') return [`${error.message}.`]
  return [
    `The service cannot listen: ${error.message}. Set HOST to an address of this machine, and PORT and METRICS_PORT to free ports above 1023.`,
  ]
}

/** Describes why a statement failed. No message of the server or the network contains the password. */
function explainStatement(error: StatementError, variable: string): string {
  const { message } = error
  if (error.outcome === 'unknown')
    return `It is unknown whether the change was committed: ${message}. ${HOW_TO_FIND_OUT}`
  if (error.unavailable === undefined) {
    const [place] = error.cause instanceof pg.DatabaseError ? (error.cause.where?.split('\n') ?? []) : []
    return error.isInFunction
      ? `A function or trigger in the database failed: ${message} (${place}).`
      : `PostgreSQL rejects a statement: ${error.detailedMessage}. Check whether a table or a column was changed: "inventory status", and \\d in psql.`
  }
  const [meaning, advice] = explanations[error.reason] ?? UNEXPLAINED
  return `${meaning}: ${message}. ${advice.replace('{variable}', variable)}`.trimEnd()
}

const UNEXPLAINED = ['PostgreSQL cannot serve this now', ''] as const

const LOCKED = [
  'Another session has locked what the command needs',
  'Run it again when that session has ended, or end it with SELECT pg_terminate_backend(<process>).',
] as const

const SCHEMA_BEHIND = [
  'The database schema is behind this version, or the role may not use it',
  'Run "inventory migrate up" as the owner of the tables, with --operator-role ROLE for another role.',
] as const

/** What causes mean for an operator, and what to do. The others pass, or need what PostgreSQL says. */
const explanations: Readonly<Partial<Record<Reason, readonly [meaning: string, advice: string]>>> = {
  forbidden: [
    'The database role lacks a privilege',
    'Run the command as the owner of the tables, or set OPERATOR_DATABASE_URL to a role for which the owner has run "inventory migrate up --operator-role ROLE".',
  ],
  hidden: [
    'Row security would hide rows from this role',
    'Use a role that sees all rows, such as one with BYPASSRLS: set OPERATOR_DATABASE_URL.',
  ],
  locked: LOCKED,
  lockTimeout: LOCKED,
  other: ['PostgreSQL cannot be reached', 'Check that it is running, the network, and {variable}.'],
  login: ['PostgreSQL refuses the connection', 'Check {variable}.'],
  settings: [
    'The connection pooler refuses the connection',
    'For the server, set DATABASE_POOLER=transaction. The command line needs a direct connection to PostgreSQL: set OPERATOR_DATABASE_URL.',
  ],
  unknownColumn: SCHEMA_BEHIND,
  unknownTable: SCHEMA_BEHIND,
  untrusted: [
    'The identity of PostgreSQL cannot be verified',
    'Check its certificate, and sslmode and sslrootcert in {variable}.',
  ],
}
