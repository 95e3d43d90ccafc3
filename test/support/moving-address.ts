import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import type { Test } from 'tap'

/** An address of a database behind which a test can put another server, as a virtual IP or a DNS name would. */
export interface MovingAddress {
  readonly url: string
  /** Sends new connections to the server at `url`; those that are open stay where they are. */
  leadTo(url: string): void
  /** Breaks every connection that is open. */
  cut(): void
}

/** An address that leads to the server at `url` to begin with, under the same role and database. */
export async function movingAddress(t: Test, url: string): Promise<MovingAddress> {
  let target = new URL(url)
  const sockets = new Set<Socket>()
  const server = createServer((near) => {
    const far = connect({ host: target.hostname, port: Number(target.port || 5432) })
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
    }
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const cut = (): void => {
    for (const socket of sockets) socket.destroy()
  }
  t.teardown(async () => {
    server.close()
    cut()
    await once(server, 'close')
  })
  const address = server.address()
  const own = new URL(url)
  own.hostname = '127.0.0.1'
  own.port = String(typeof address === 'object' && address !== null ? address.port : 0)
  return {
    url: own.href,
    leadTo(next) {
      target = new URL(next)
    },
    cut,
  }
}
