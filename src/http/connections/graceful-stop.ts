import { once } from 'node:events'
import type { Server } from 'node:http'
import { Server as NetServer } from 'node:net'
import { setImmediate, setTimeout } from 'node:timers/promises'
import type { Connection } from './connection.ts'
import type { StartQueue } from './start-queue.ts'

/** Drain period: how long the server keeps listening after it has begun to send `Connection: close`. */
const DRAIN_MS = 1000

/**
 * How long a client may take to send a request while the server is stopping. Shorter than usual, so that an incomplete request
 * ends well before the process is killed.
 */
const ARRIVAL_TIMEOUT_MS = 4000

/** How long requests may be deferred while the port is being closed. */
const CLOSE_PORT_TIMEOUT_MS = 500

/** Grace period: how long a connection must be idle, after the port is closed, before it is closed. */
const IDLE_GRACE_MS = 500
const IDLE_CHECK_INTERVAL_MS = 100

/**
 * Stops an HTTP server without dropping a response or losing a request. During the drain period it keeps listening, and
 * `Connection: close` tells clients to reconnect elsewhere. Then it closes the port, sends the pending responses, and closes
 * connections that stay idle. Resolves when all connections are closed.
 */
export async function stopGracefully(
  server: Server,
  connections: ReadonlyMap<unknown, Connection>,
  queue: StartQueue,
): Promise<void> {
  if (!server.listening) return
  server.headersTimeout = Math.min(server.headersTimeout, ARRIVAL_TIMEOUT_MS)
  server.requestTimeout = Math.min(server.requestTimeout, ARRIVAL_TIMEOUT_MS)
  if (connections.size > 0) await setTimeout(DRAIN_MS)
  const closed = once(server, 'close')
  // Clients reconnect after each `Connection: close`, and the new connections would never cease.
  queue.hold()
  await waitForConnections(server)
  // Not `close` of the HTTP server, which also closes connections whose client is still reading a response, and idle ones
  // on which a request may be arriving.
  NetServer.prototype.close.call(server)
  queue.release()
  const portClosedAt = performance.now()
  const idleCheck = setInterval(() => void closeIdle(connections, portClosedAt), IDLE_CHECK_INTERVAL_MS)
  await closed
  clearInterval(idleCheck)
}

/**
 * Waits until no connection is waiting to be accepted: the system would reset such a connection, and its request would be
 * lost. A client that connects between the last check and the close of the port is lost.
 */
async function waitForConnections(server: Server): Promise<void> {
  const deadline = performance.now() + CLOSE_PORT_TIMEOUT_MS
  let hasAccepted: boolean
  const onConnection = (): void => {
    hasAccepted = true
  }
  server.on('connection', onConnection)
  do {
    hasAccepted = false
    // Node accepts one connection in each event-loop iteration. The current iteration may already have done so.
    await setImmediate()
    await setImmediate()
  } while (hasAccepted && performance.now() < deadline)
  server.off('connection', onConnection)
}

/** Unlike Node's own method, closes connections with an incomplete request, too. */
async function closeIdle(connections: ReadonlyMap<unknown, Connection>, portClosedAt: number): Promise<void> {
  // Lets Node read requests that have already arrived.
  await setImmediate()
  const graceStart = performance.now() - IDLE_GRACE_MS
  if (portClosedAt > graceStart) return
  for (const { current, since, socket } of connections.values()) {
    // Those that are being closed have a timeout of their own.
    if (current === undefined && since <= graceStart && socket.writable) socket.destroy()
  }
}
