import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import type { Test } from 'tap'

/** When the connection is lost: before PostgreSQL receives COMMIT, or after it has committed. */
export type LostCommit = 'before' | 'after'

/** ErrorResponse FATAL 28P01, with which PostgreSQL refuses a password (manual, section 54.8). */
const REFUSAL = Buffer.from('E\0\0\0\0SFATAL\0C28P01\0Mnot any more\0\0', 'latin1')
REFUSAL.writeUInt32BE(REFUSAL.length - 1, 1)

/**
 * Returns the address of a database through a proxy that cuts the connection around its first COMMIT. Later connections
 * reach the database, or are refused.
 */
export async function losingCommit(
  t: Test,
  databaseUrl: string,
  moment: LostCommit,
  isRefusedLater = false,
): Promise<string> {
  const { hostname, port: databasePort } = new URL(databaseUrl)
  const sockets = new Set<Socket>()
  let isLost = false
  const server = createServer((near) => {
    if (isLost && isRefusedLater) {
      near.on('error', () => {})
      near.once('data', () => near.end(REFUSAL))
      return
    }
    const far = connect({ host: hostname, port: Number(databasePort || 5432) })
    const cut = (): void => {
      near.destroy()
      far.destroy()
    }
    for (const socket of [near, far]) {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', cut)
    }
    far.on('data', (bytes) => near.write(bytes))
    near.on('data', (bytes) => {
      if (isLost || !bytes.includes('COMMIT\0')) {
        far.write(bytes)
        return
      }
      isLost = true
      far.removeAllListeners('data')
      if (moment === 'before') cut()
      else {
        far.once('data', cut)
        far.write(bytes)
      }
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  const address = server.address()
  const url = new URL(databaseUrl)
  url.hostname = '127.0.0.1'
  url.port = String(typeof address === 'object' && address !== null ? address.port : 0)
  return url.href
}
