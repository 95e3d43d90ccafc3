import { ConfigurationError } from './config.ts'
import { EmbeddedServerError } from './database/embedded.ts'
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
  switch ('code' in error ? error.code : undefined) {
    case 'EADDRINUSE':
      return `${place} is in use by another program. Stop that one, or set PORT to another port.`
    case 'EACCES':
      return `This user may not listen on ${place}. Set PORT to one above 1023.`
    case 'EADDRNOTAVAIL':
      return `${place} is no address of this machine. Set HOST to one that is.`
    case 'ECONNREFUSED':
      return `PostgreSQL cannot be reached${place === '' ? '' : ` at ${place}`}. Is it running, and is DATABASE_URL right?`
    default:
      return error.stack ?? error.message
  }
}
