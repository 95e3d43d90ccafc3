import type { Server } from 'node:http'
import { Server as NetServer } from 'node:net'
import { setImmediate } from 'node:timers/promises'
import type { StartQueue } from './start-queue.ts'

/** How long requests may be deferred while the port is being closed. */
const CLOSE_PORT_TIMEOUT_MS = 500

/**
 * Stops listening once no connection is waiting to be accepted: the system would reset such a connection, and its request would
 * be lost. A client that connects between the last check and the close of the port is lost. Requests are deferred meanwhile,
 * because clients reconnect after each `Connection: close`, and the new connections would never cease.
 */
export async function closePort(server: Server, queue: StartQueue): Promise<void> {
  const deadline = performance.now() + CLOSE_PORT_TIMEOUT_MS
  let hasAccepted: boolean
  const onConnection = (): void => {
    hasAccepted = true
  }
  server.on('connection', onConnection)
  queue.hold()
  do {
    hasAccepted = false
    // Node accepts one connection in each event-loop iteration. The current iteration may already have done so.
    await setImmediate()
    await setImmediate()
  } while (hasAccepted && performance.now() < deadline)
  server.off('connection', onConnection)
  // Not `close` of the HTTP server, which also closes connections whose client is still reading a response, and idle ones
  // on which a request may be arriving.
  NetServer.prototype.close.call(server)
  queue.release()
}
