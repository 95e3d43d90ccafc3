import { type Logger, pino } from 'pino'
import pretty from 'pino-pretty'

/** The log on standard output: JSON lines, or readable ones where a person watches a terminal. */
export function openLog(level: string): Logger {
  const options = {
    level,
    base: null,
    redact: ['*.headers.authorization', '*.password', '*.connectionString'],
  }
  return process.stdout.isTTY
    ? pino(options, pretty({ sync: true, ignore: 'pid,hostname', translateTime: 'SYS:HH:MM:ss.l' }))
    : pino(options)
}
