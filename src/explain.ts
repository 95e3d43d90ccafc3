import { ConfigurationError } from './config.ts'
import { EmbeddedServerError } from './database/embedded-programs.ts'
import { DatabaseUnavailableError, isRefusal } from './database/failures.ts'

/**
 * Says why a program cannot go on, in words for the one who started it: no stack trace where there is something that
 * they can mend. What is not known here is a fault of ours, and keeps its trace.
 */
export function explain(error: unknown): string {
  if (error instanceof ConfigurationError) {
    return `The configuration is not complete or not right:\n${error.message.replaceAll(/^/gm, '  ')}`
  }
  if (error instanceof EmbeddedServerError) return error.message
  if (error instanceof DatabaseUnavailableError) return explain(error.cause)
  if (!(error instanceof Error)) return String(error)
  if (isRefusal(error)) return `PostgreSQL refuses the connection: ${error.message}. Check DATABASE_URL.`
  const place = 'address' in error ? `${error.address}${'port' in error ? `:${error.port}` : ''}` : ''
  switch ('code' in error && 'syscall' in error ? `${error.syscall} ${error.code}` : undefined) {
    case 'listen EADDRINUSE':
      return `${place} is in use by another program. Stop that one, or set PORT to another port.`
    case 'listen EACCES':
      return `This user may not listen on ${place}. Set PORT to one above 1023.`
    case 'listen EADDRNOTAVAIL':
      return `${place} is no address of this machine. Set HOST to one that is.`
    case 'connect ECONNREFUSED':
      return `PostgreSQL cannot be reached${place === '' ? '' : ` at ${place}`}. Is it running, and is DATABASE_URL right?`
    default:
      // A system call that failed says what it wanted and with which file or host; all else is a fault of ours.
      return 'syscall' in error ? `${error.message}.` : (error.stack ?? error.message)
  }
}
