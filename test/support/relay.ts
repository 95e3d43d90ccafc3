import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { pipeline } from 'node:stream/promises'
import type { Test } from 'tap'
import { eventually } from './eventually.ts'
import { listen } from './ports.ts'

/** Returns what goes on in place of the bytes, or undefined to break the connection. */
type Filter = (bytes: Buffer) => Buffer | undefined | Promise<Buffer>

/** A filter that lets everything through, and counts the pieces that contain a text. */
export function countingFilter(text: string) {
  const filter: Filter = (bytes) => {
    if (bytes.includes(text)) counter.count++
    return bytes
  }
  const counter = { count: 0, filter }
  return counter
}

/**
 * Listens on a free port of 127.0.0.1 until the test ends, and relays every connection to the server at `url`, through the filters.
 * It fails when a test wants it to.
 */
export async function startRelay(
  t: Pick<Test, 'teardown'>,
  url: string,
  filters: Partial<Record<'towardsDatabase' | 'towardsClient', Filter>> = {},
) {
  let target = new URL(url)
  let stalled = Promise.resolve()
  let goOn = (): void => {}
  const sockets = new Set<Socket>()
  const carry = (from: Socket, filter: Filter | undefined, to: Socket): void => {
    sockets.add(from)
    from.on('error', () => {})
    from.on('close', () => {
      sockets.delete(from)
      to.destroy()
    })
    const filtered = async function* (source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
      for await (const bytes of source) {
        await stalled
        const passed = filter === undefined ? bytes : await filter(bytes)
        if (passed === undefined) throw new Error('The connection is to break.')
        yield passed
      }
    }
    pipeline(from, filtered, to).catch(() => {})
  }
  let resets = 0
  const server = createServer((near) => {
    near.on('error', (error) => {
      if ('code' in error && error.code === 'ECONNRESET') resets++
    })
    const far = connect({ host: target.hostname, port: Number(target.port || 5432) })
    carry(near, filters.towardsDatabase, far)
    carry(far, filters.towardsClient, near)
  })
  const port = await listen(t, server)
  const relayed = new URL(url)
  relayed.host = `127.0.0.1:${port}`
  /** Breaks every connection that is open. */
  const cut = (): void => {
    for (const socket of sockets) socket.destroy()
  }
  /** Breaks every connection, and refuses new ones. */
  const fail = (): void => {
    if (server.listening) server.close()
    cut()
  }
  t.teardown(fail)
  return {
    /** The address of the database through the relay, under the same role. */
    url: relayed.href,
    cut,
    fail,
    /** Returns how many connections clients have ended with a reset. */
    resets: () => resets,
    /** Sends new connections to the server at `url`, as a virtual IP or a DNS name would; those that are open stay where they are. */
    leadTo(next: string) {
      target = new URL(next)
    },
    /** Lets nothing through, in either direction, without closing anything. */
    stall() {
      stalled = new Promise((resolve) => (goOn = resolve))
    },
    /** Breaks every connection, and accepts and serves new ones again, on the same port. */
    async restore() {
      cut()
      goOn()
      stalled = Promise.resolve()
      if (server.listening) return
      // An outgoing connection of another process may have the port for a moment.
      await eventually(`port ${port} to be free`, () => {
        server.listen(port, '127.0.0.1')
        return once(server, 'listening').catch(() => false as const)
      })
    },
  }
}

/**
 * Starts a relay to a server that lacks a feature. Statements that contain `feature` reach PostgreSQL with another word of the same
 * length in its place, which PostgreSQL does not know: the error is its own.
 */
export function startLackingServer(t: Test, url: string, feature: string) {
  const unknown = feature.replace(/[a-z](?=[^a-z]*$)/i, (last) => (last === 'q' ? 'x' : 'q'))
  return startRelay(t, url, {
    // pg writes a statement at once, so it arrives in one piece.
    towardsDatabase: (bytes) => Buffer.from(bytes.toString('latin1').replaceAll(feature, unknown), 'latin1'),
  })
}
