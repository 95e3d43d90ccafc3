import cluster from 'node:cluster'
import { setImmediate } from 'node:timers'
import { type DestinationStream, type Logger, pino } from 'pino'
import pretty from 'pino-pretty'

/** The log on standard output: JSON lines, or readable ones where a person watches a terminal. */
export function openLog(level: string): Logger {
  // Only workers need to be told apart; a container has one process.
  const base = cluster.worker ? { pid: process.pid, worker: cluster.worker.id } : null
  if (process.stdout.isTTY) {
    return pino({ level, base }, pretty({ sync: true, ignore: 'pid', translateTime: 'SYS:HH:MM:ss.l' }))
  }
  // A log that cannot be written, on a full disk for one, must not stop the service. Pino's own destination would try
  // again without end, and nothing else would run.
  process.stdout.on('error', () => {})
  return pino({ level, base }, standardOutput())
}

/** Writes the lines of one turn of the event loop at once: a busy service would make a system call for each. */
function standardOutput(): DestinationStream {
  let lines = ''
  const writeAll = (): void => {
    if (lines === '') return
    process.stdout.write(lines)
    lines = ''
  }
  process.on('exit', writeAll)
  return {
    write(line) {
      if (lines === '') setImmediate(writeAll)
      lines += line
    },
  }
}
