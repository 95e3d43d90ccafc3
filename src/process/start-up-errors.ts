import { ConfigurationError } from '../config/config.ts'
import {
  DatabaseUnavailableError,
  isForbidden,
  isPoolerRefusal,
  isRefusal,
  isUntrusted,
} from '../database/failures.ts'
import { OutcomeUnknownError } from '../database/transaction.ts'
import { EmbeddedServerError } from '../local/embedded-programs.ts'

/**
 * Says why a program cannot go on, in words for the one who started it: no stack trace where there is something that
 * they can fix. What is not known here is a fault of ours, and keeps its trace. `variable` has the database's address.
 */
export function explain(error: unknown, variable = 'DATABASE_URL'): string {
  if (error instanceof ConfigurationError) {
    return `The configuration is not complete or not right:\n${error.message.replaceAll(/^/gm, '  ')}`
  }
  if (error instanceof EmbeddedServerError) return error.message
  if (error instanceof OutcomeUnknownError) {
    return (
      'The connection to PostgreSQL was lost during the commit, and it is unknown whether the change was made: ' +
      `all of it, or nothing. ${explainOutage(causeOf(error), variable)}`
    )
  }
  if (error instanceof DatabaseUnavailableError) return explainOutage(error.cause, variable)
  if (!(error instanceof Error)) return String(error)
  const place = placeOf(error)
  switch ('syscall' in error ? `${error.syscall} ${codeOf(error)}` : undefined) {
    case 'listen EADDRINUSE':
      return `${place} is in use by another program. Stop that one, or set PORT (METRICS_PORT for the metrics) to another port.`
    case 'listen EACCES':
      return `This user may not listen on ${place}. Set PORT (METRICS_PORT for the metrics) to one above 1023.`
    case 'listen EADDRNOTAVAIL':
      return `${place} is no address of this machine. Set HOST to one that is.`
    default:
      if (isForbidden(error) || isRefusal(error) || codeOf(error) === 'ECONNREFUSED')
        return explainOutage(error, variable)
      // A system call that failed says what it wanted and with which file or host; all else is a fault of ours.
      return 'syscall' in error ? `${error.message}.` : (error.stack ?? error.message)
  }
}

/** Why PostgreSQL cannot be asked. Messages of the server and of the network say nothing of a password. */
function explainOutage(cause: unknown, variable: string): string {
  if (!(cause instanceof Error)) return `PostgreSQL cannot be reached: ${cause}`
  if (isUntrusted(cause)) {
    return `PostgreSQL cannot be trusted: ${cause.message}. Check its certificate, and sslmode and sslrootcert in ${variable}.`
  }
  if (isPoolerRefusal(cause)) {
    return (
      `A pooler refuses the connection: ${cause.message}. For the server set DATABASE_POOLER=transaction; ` +
      'the command line needs the address of PostgreSQL itself, in OPERATOR_DATABASE_URL.'
    )
  }
  if (isForbidden(cause)) {
    return `The database role may not do this: ${cause.message}. The command line can have another: OPERATOR_DATABASE_URL.`
  }
  if (isRefusal(cause)) return `PostgreSQL refuses the connection: ${cause.message}. Check ${variable}.`
  switch (codeOf(cause)) {
    case 'ECONNREFUSED': {
      const place = placeOf(cause)
      return `PostgreSQL cannot be reached${place === '' ? '' : ` at ${place}`}. Is it running, and is ${variable} right?`
    }
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return `The host of PostgreSQL cannot be found: ${cause.message}. Check ${variable}.`
    case '42P01':
    case '42703':
      return `The schema of the database is behind this version: ${cause.message}. Run "inventory migrate up".`
    default:
      return `PostgreSQL cannot serve this now: ${cause.message}.`
  }
}

/** The failure of the database that an error was raised for. */
function causeOf(error: Error): unknown {
  return error.cause instanceof DatabaseUnavailableError ? error.cause.cause : error.cause
}

function codeOf(error: Error): unknown {
  return 'code' in error ? error.code : undefined
}

/** The address that an error of the network speaks of; of several that a host name has, the first. */
function placeOf(error: Error): string {
  const known: unknown = error instanceof AggregateError ? error.errors[0] : error
  if (!(known instanceof Error) || !('address' in known)) return ''
  return `${known.address}${'port' in known ? `:${known.port}` : ''}`
}
