import type { Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Connection } from './connection.ts'

const CHECK_INTERVAL_MS = 250

/** A response counts as stalled if nothing was read for this long. */
const STALLED_MS = 500

/** What was written of a response that waits for its client to read, and since when it has not become more. */
interface Progress {
  readonly response: ServerResponse | undefined
  readonly writtenBytes: number
  readonly since: number
}

/**
 * Closes connections whose client reads nothing of its response, until the server is closed: after `stallMs`, and those
 * without progress for longest if more than `maxStalled` responses have made none for `STALLED_MS`. A client is judged by the
 * bytes that the system has taken, and not by the timeout of its socket, which anything that it sends would restart. A response
 * that waits for the database is not judged.
 */
export function closeUnreadResponses(
  server: Server,
  connections: Iterable<Connection>,
  stallMs: number,
  maxStalled: number,
): void {
  let unread = new Map<Connection, Progress>()
  const timer = setInterval(() => {
    unread = progressOf(connections, unread)
    const now = performance.now()
    const stalled = [...unread]
      .filter(([, { since }]) => now - since >= STALLED_MS)
      .sort(([, a], [, b]) => a.since - b.since)
    const excess = stalled.length - maxStalled
    for (const [index, [{ socket }, { since }]] of stalled.entries()) {
      if (index < excess || now - since >= stallMs) socket.destroy()
    }
  }, CHECK_INTERVAL_MS).unref()
  server.once('close', () => clearInterval(timer))
}

/** Returns the progress of each response that waits for its client to read. */
function progressOf(
  connections: Iterable<Connection>,
  earlier: ReadonlyMap<Connection, Progress>,
): Map<Connection, Progress> {
  const unread = new Map<Connection, Progress>()
  for (const connection of connections) {
    const { socket, current: response } = connection
    if (socket.writableLength === 0) continue
    const writtenBytes = writtenOn(socket)
    const last = earlier.get(connection)
    const isSame = last?.response === response && last?.writtenBytes === writtenBytes
    unread.set(connection, isSame ? last : { response, writtenBytes, since: performance.now() })
  }
  return unread
}

/**
 * Returns how many bytes the system has taken of everything that was written to the socket. `bytesWritten` also counts what
 * waits in libuv's queue, whose size is known only to the handle of the socket.
 */
function writtenOn(socket: Socket): number {
  const handle: unknown = Reflect.get(socket, '_handle')
  const hasQueue = typeof handle === 'object' && handle !== null && 'writeQueueSize' in handle
  return socket.bytesWritten - (hasQueue ? Number(handle.writeQueueSize) : socket.writableLength)
}
