import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'

/** A TCP proxy that simulates a database at a distance of some milliseconds. */
export interface DelayingProxy {
  /** The address of the database through the proxy. */
  readonly url: string
  stop(): Promise<void>
}

/**
 * Starts a proxy that delays what clients send by the whole round trip: Node's timers count whole milliseconds, so half
 * of one for each direction would become two whole ones. What the database sends is not delayed.
 */
export async function startDelayingProxy(databaseUrl: string, roundTripMs: number): Promise<DelayingProxy> {
  const target = new URL(databaseUrl)
  const sockets = new Set<Socket>()
  const server = createServer({ noDelay: true }, (client) => {
    const upstream = connect({
      host: target.hostname,
      port: Number(target.port || 5432),
      noDelay: true,
    })
    for (const [socket, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(socket)
      socket.on('error', () => other.destroy())
      socket.on('close', () => {
        sockets.delete(socket)
        other.destroy()
      })
    }
    client.on('data', (piece) => setTimeout(() => upstream.write(piece), roundTripMs))
    upstream.pipe(client)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const closed = once(server, 'close')
  const address = server.address()
  if (typeof address !== 'object' || address === null)
    throw new Error('The operating system assigned no port')
  const url = new URL(databaseUrl)
  url.hostname = '127.0.0.1'
  url.port = String(address.port)
  return {
    url: url.href,
    async stop() {
      server.close()
      for (const socket of sockets) socket.destroy()
      await closed
    },
  }
}
