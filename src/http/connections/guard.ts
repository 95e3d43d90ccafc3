import type { Connection } from './connection.ts'

const CHECK_INTERVAL_MS = 500

/** Limits on what clients can make the server keep. */
export const connectionLimits = {
  /** Maximum open connections. Beyond it, each response closes its connection, and those that have been idle are closed. */
  maxOpen: 10_000,
  /** How long a connection must have been idle before it is closed because too many are open. */
  minIdleMs: 5000,
  /** How long a client may read nothing of a response. */
  stallMs: 30_000,
  /** Maximum responses whose client has read nothing for a while. */
  maxStalled: 1000,
}

export type ConnectionLimits = Readonly<typeof connectionLimits>

/**
 * Closes connections that keep the server from serving others: those whose client reads nothing of its response for `stallMs`, or
 * for a shorter time if there are more than `maxStalled`; and, while more than `maxOpen` are open, those that have been idle
 * longest. A client is judged by the bytes that the system has taken, and not by the timeout of its socket, which anything
 * that it sends would restart. A response that waits for the database is not judged.
 *
 * @param limits returns the limits at each check
 * @returns a function that ends the checks
 */
export function guardConnections(
  connections: ReadonlyMap<unknown, Connection>,
  limits: () => ConnectionLimits,
): () => void {
  /** How much of what was written the system has taken, and since when it has not become more. */
  const progress = new WeakMap<Connection, { takenBytes: number; since: number }>()

  /** Returns since when the client has read nothing; undefined if it reads, or has nothing to read. */
  const stalledSince = (connection: Connection, now: number): number | undefined => {
    const { socket } = connection
    if (socket.writableLength === 0) return undefined
    // Of the bytes that were written, the length are those of writes that the system has not taken whole.
    const takenBytes = socket.bytesWritten - socket.writableLength
    const last = progress.get(connection)
    if (last?.takenBytes === takenBytes) return last.since
    progress.set(connection, { takenBytes, since: now })
    return undefined
  }

  const check = (now: number): void => {
    const { maxOpen, minIdleMs, stallMs, maxStalled } = limits()
    const stalled: Inactive[] = []
    const idle: Inactive[] = []
    for (const connection of connections.values()) {
      const { isIdle, since, socket } = connection
      const stalledAt = stalledSince(connection, now)
      if (stalledAt !== undefined) stalled.push({ since: stalledAt, socket })
      else if (isIdle && now - since >= minIdleMs) idle.push({ since, socket })
    }
    closeOldest(stalled, stalled.length - maxStalled)
    closeOldest(idle, connections.size - maxOpen)
    for (const { since, socket } of stalled) if (now - since >= stallMs) socket.destroy()
  }

  const timer = setInterval(() => {
    const now = performance.now()
    // Node first reads what has arrived, so that no connection with a request counts as idle.
    setImmediate(() => check(now))
  }, CHECK_INTERVAL_MS).unref()
  return () => clearInterval(timer)
}

/** A connection on which nothing has happened since then, in `performance.now()` time. */
type Inactive = Pick<Connection, 'since' | 'socket'>

function closeOldest(connections: Inactive[], count: number): void {
  connections.sort((a, b) => a.since - b.since)
  for (const { socket } of connections.slice(0, Math.max(0, count))) socket.destroy()
}
