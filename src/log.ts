import cluster from 'node:cluster'
import { type Logger, pino } from 'pino'
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
  return pino({ level, base }, process.stdout)
}
