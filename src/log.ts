import cluster from 'node:cluster'
import { type Logger, pino } from 'pino'
import pretty from 'pino-pretty'

/** The log on standard output: JSON lines, or readable ones where a person watches a terminal. */
export function openLog(level: string): Logger {
  // Only workers need to be told apart; a container has one process.
  const base = cluster.worker ? { pid: process.pid, worker: cluster.worker.id } : null
  return process.stdout.isTTY
    ? pino({ level, base }, pretty({ sync: true, ignore: 'pid', translateTime: 'SYS:HH:MM:ss.l' }))
    : pino({ level, base })
}
