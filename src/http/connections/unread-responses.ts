import type { Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Connection } from './connection.ts'
import type { OpenConnections } from './open-connections.ts'

export interface UnreadResponseLimits {
  /** How long a client may read nothing of a response. */
  readonly stallMs: number
  /** Maximum responses of which nothing has been read for `STALL_MS`. */
  readonly maxStalled: number
}

const CHECK_INTERVAL_MS = 250

/** A response counts as stalled if nothing was read for this long. */
const STALL_MS = 500

/** What was written of a response that waits for its client to read, and since when it has not become more. */
interface Progress {
  readonly response: ServerResponse | undefined
  readonly writtenBytes: number
  readonly since: number
}

/**
 * Closes connections whose client reads nothing of its response. A client is judged by the bytes that the system has taken,
 * and not by the timeout of its socket, which anything that it sends would restart. A response that waits for the database is
 * not judged.
 */
export class UnreadResponses {
  readonly #connections: OpenConnections
  readonly #limits: UnreadResponseLimits
  #unread = new Map<Connection, Progress>()

  constructor(connections: OpenConnections, limits: UnreadResponseLimits) {
    this.#connections = connections
    this.#limits = limits
  }

  /** Checks the connections from now until the server is closed. */
  watch(server: Server): void {
    const timer = setInterval(() => this.#check(performance.now()), CHECK_INTERVAL_MS).unref()
    server.once('close', () => clearInterval(timer))
  }

  /** At the limit, closes the connections that have made no progress for longest. */
  #check(now: number): void {
    const unread = new Map<Connection, Progress>()
    for (const connection of this.#connections) {
      const { socket, current: response } = connection
      if (socket.writableLength === 0) continue
      const writtenBytes = writtenOn(socket)
      const earlier = this.#unread.get(connection)
      const hasProgress = earlier?.response !== response || earlier?.writtenBytes !== writtenBytes
      unread.set(
        connection,
        earlier === undefined || hasProgress ? { response, writtenBytes, since: now } : earlier,
      )
    }
    this.#unread = unread
    const stalled = [...unread]
      .filter(([, { since }]) => now - since >= STALL_MS)
      .sort(([, a], [, b]) => a.since - b.since)
    const excess = stalled.length - this.#limits.maxStalled
    for (const [index, [{ socket }, { since }]] of stalled.entries()) {
      if (index < excess || now - since >= this.#limits.stallMs) socket.destroy()
    }
  }
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
