import cluster from 'node:cluster'
import { type DestinationStream, type Logger, pino } from 'pino'
import pretty from 'pino-pretty'

/** The most characters of log lines that wait where standard output is not read: some seconds of a busy service. */
const MAX_QUEUED_LENGTH = 16 * 1024 * 1024

/** How long a line may wait to be written together with later ones, and how many characters are written at once. */
const WRITE_INTERVAL_MS = 10
const WRITE_LENGTH = 16 * 1024

let dropped = 0

/** Log lines that this process could not write so far, because standard output was not read or refused them. */
export function droppedLogLines(): number {
  return dropped
}

/** The log on standard output: JSON lines, or readable ones where a person watches a terminal. */
export function openLog(level: string): Logger {
  // Only workers need to be told apart; a container has one process.
  const base = cluster.worker ? { pid: process.pid, worker: cluster.worker.id } : null
  if (process.stdout.isTTY) {
    return pino({ level, base }, pretty({ sync: true, ignore: 'pid', translateTime: 'SYS:HH:MM:ss.l' }))
  }
  const log = pino(
    { level, base },
    standardOutput((lines) => {
      log.warn({ lines }, 'log lines were dropped, because standard output was not read or was full')
    }),
  )
  return log
}

/**
 * Writes the lines of a few milliseconds at once: a system call for each would cost as much as all else in a log line. What
 * cannot be written is dropped, and `onResumed` is called with the number of lines once writing works again.
 *
 * Not pino's own destination: where a disk is full at the end of the process, that tries again without end (`flushSync`
 * in sonic-boom), and where nobody reads a pipe, its write holds a thread that Node waits for.
 */
function standardOutput(onResumed: (lines: number) => void): DestinationStream {
  const { stdout } = process
  let text = ''
  let lines = 0
  let unreported = 0
  let timer: NodeJS.Timeout | undefined

  const drop = (count: number): void => {
    dropped += count
    unreported += count
  }
  const writeAll = (): void => {
    clearTimeout(timer)
    timer = undefined
    if (text === '') return
    const count = lines
    stdout.write(text, (error) => {
      if (error) {
        drop(count)
      } else if (unreported > 0 && stdout.writableLength < MAX_QUEUED_LENGTH / 2) {
        const report = unreported
        unreported = 0
        onResumed(report)
      }
    })
    text = ''
    lines = 0
  }

  // A log that cannot be written, on a full disk for one, must not stop the service.
  stdout.on('error', () => {})
  process.on('exit', writeAll)
  return {
    write(line) {
      if (stdout.writableLength + text.length + line.length > MAX_QUEUED_LENGTH) {
        drop(1)
        return
      }
      text += line
      lines++
      if (text.length >= WRITE_LENGTH) writeAll()
      else timer ??= setTimeout(writeAll, WRITE_INTERVAL_MS)
    },
  }
}
