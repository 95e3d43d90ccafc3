import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { type Duplex, PassThrough } from 'node:stream'
import type { Test } from 'tap'
import { eventually } from './eventually.ts'

/** A port of this machine from which connections go on to a database. */
export interface Relay {
  /** The address of the database through the relay. */
  readonly url: string
  /** Both ends of every open connection. */
  readonly sockets: ReadonlySet<Socket>
  /** Breaks every connection. */
  cut(): void
  /** Stops listening. */
  close(): void
  /** Listens again, on the same port. */
  listen(): Promise<void>
}

export interface RelayOptions {
  /** Returns where a new connection goes. */
  target(): URL
  /** Returns false to close a new connection at once. */
  accepts?(near: Socket): boolean
  /** Called with the client's and the database's end of a new connection. */
  onConnection?(near: Socket, far: Socket): void
  /** Returns what the bytes from the client go through on a new connection, which is cut if that fails. */
  towardsDatabase?(): Duplex
  /** Returns what the bytes from the database go through, likewise. */
  towardsClient?(): Duplex
}

/**
 * Listens on a free port of 127.0.0.1 until the test ends and relays every connection, under the target's role and database.
 */
export async function startRelay(
  t: Pick<Test, 'teardown'>,
  {
    target,
    accepts = () => true,
    onConnection = () => {},
    towardsDatabase = () => new PassThrough(),
    towardsClient = () => new PassThrough(),
  }: RelayOptions,
): Promise<Relay> {
  const sockets = new Set<Socket>()
  const server = createServer((near) => {
    if (!accepts(near)) {
      near.destroy()
      return
    }
    const { hostname, port } = target()
    const far = connect({ host: hostname, port: Number(port || 5432) })
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(from)
      from.on('error', () => {})
      from.on('close', () => {
        sockets.delete(from)
        to.destroy()
      })
    }
    for (const [from, through, to] of [
      [near, towardsDatabase(), far],
      [far, towardsClient(), near],
    ] as const) {
      through.on('error', () => from.destroy())
      from.pipe(through).pipe(to)
    }
    onConnection(near, far)
  })
  // An outgoing connection of another process may have the port for a moment.
  const listenOn = (port: number): Promise<true> =>
    eventually(`port ${port} to be free`, async () => {
      server.listen(port, '127.0.0.1')
      return once(server, 'listening').then(
        () => true as const,
        () => undefined,
      )
    })
  await listenOn(0)
  const address = server.address()
  const port = typeof address === 'object' && address !== null ? address.port : 0
  const url = new URL(target())
  url.hostname = '127.0.0.1'
  url.port = String(port)
  const cut = (): void => {
    for (const socket of sockets) socket.destroy()
  }
  const close = (): void => {
    if (server.listening) server.close()
  }
  t.teardown(() => {
    close()
    cut()
  })
  return {
    url: url.href,
    sockets,
    cut,
    close,
    async listen() {
      if (!server.listening) await listenOn(port)
    },
  }
}
