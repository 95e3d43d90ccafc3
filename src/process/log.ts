import { type DestinationStream, type Logger, pino } from 'pino'

/** Maximum characters of log lines that wait while standard output is not read: some seconds of a busy service. */
const MAX_QUEUED_LENGTH = 16 * 1024 * 1024

/** How long a line waits to be written together with later ones. */
const WRITE_INTERVAL_MS = 10

interface Destination extends DestinationStream {
  /** Calls back when all lines are written or dropped. */
  flush(done: () => void): void
}

let dropped = 0

/** Returns how many log lines were dropped. */
export function droppedLogLines(): number {
  return dropped
}

/** Opens the log on standard output: JSON lines or, on a terminal, where pino-pretty is installed, readable ones. */
export async function openLog(level: string): Promise<Logger> {
  // No process id: a container has one process.
  const base = null
  const pretty = process.stdout.isTTY && (await import('pino-pretty').catch(() => undefined))
  return pino(
    { level, base },
    pretty ? pretty.default({ sync: true, translateTime: 'SYS:HH:MM:ss.l' }) : standardOutput(),
  )
}

/**
 * Writes the lines of a few milliseconds together: a system call for each would cost as much as the rest of a log line. Drops those
 * that cannot be written.
 *
 * Pino's own destination would hang: if the disk is full when the process exits, it retries forever (`flushSync` in sonic-boom), and
 * if no one reads a pipe, its write blocks a thread that Node waits for.
 */
function standardOutput(): Destination {
  const { stdout } = process
  let text = ''
  let lines = 0
  let timer: NodeJS.Timeout | undefined

  const writeAll = (): void => {
    clearTimeout(timer)
    timer = undefined
    if (text === '') return
    const count = lines
    stdout.write(text, (error) => {
      if (error) dropped += count
    })
    text = ''
    lines = 0
  }

  // A log that cannot be written, for example on a full disk, must not stop the service.
  stdout.on('error', () => {})
  process.on('exit', writeAll)
  return {
    write(line) {
      if (stdout.writableLength + text.length + line.length > MAX_QUEUED_LENGTH) {
        dropped++
        return
      }
      text += line
      lines++
      timer ??= setTimeout(writeAll, WRITE_INTERVAL_MS)
    },
    flush(done) {
      writeAll()
      stdout.write('', () => done())
    },
  }
}
