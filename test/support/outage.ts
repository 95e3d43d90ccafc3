import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import type { Test } from 'tap'

/** A way to a database that a test can cut, block and open again, as a network or a server would. */
export interface Outage {
  /** The address of the database through this way. */
  readonly url: string
  /** Cuts every connection and refuses new ones. */
  cut(): Promise<void>
  /** Lets nothing through, in either direction, without closing anything. */
  stall(): void
  /** Leaves every connection as it is and closes new ones at once. */
  refuseNew(): void
  /** Ends the outage. */
  restore(): Promise<void>
  /** How many bytes have come from the database. */
  received(): number
}

export async function outageOf(t: Test, databaseUrl: string): Promise<Outage> {
  const { hostname, port: databasePort } = new URL(databaseUrl)
  const sockets = new Set<Socket>()
  let stalled = false
  let refusing = false
  let received = 0
  const server = createServer((near) => {
    if (refusing) {
      near.destroy()
      return
    }
    const far = connect({ host: hostname, port: Number(databasePort || 5432) })
    far.on('data', ({ length }) => (received += length))
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
      from.pipe(to)
      if (stalled) from.unpipe()
    }
  })
  const listen = async (port: number): Promise<void> => {
    server.listen(port, '127.0.0.1')
    await once(server, 'listening')
  }
  await listen(0)
  const address = server.address()
  const port = typeof address === 'object' && address !== null ? address.port : 0
  const cut = async (): Promise<void> => {
    if (server.listening) server.close()
    for (const socket of sockets) socket.destroy()
    if (server.listening) await once(server, 'close')
  }
  t.teardown(cut)
  const url = new URL(databaseUrl)
  url.hostname = '127.0.0.1'
  url.port = String(port)
  return {
    url: url.href,
    cut,
    received: () => received,
    stall() {
      stalled = true
      for (const socket of sockets) socket.unpipe().pause()
    },
    refuseNew() {
      refusing = true
    },
    async restore() {
      refusing = false
      stalled = false
      for (const socket of sockets) socket.destroy()
      if (!server.listening) await listen(port)
    },
  }
}
