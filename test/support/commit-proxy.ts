import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import type { Test } from 'tap'

/** When the connection is lost: before PostgreSQL receives COMMIT, or after it has committed. */
export type LostCommit = 'before' | 'after'

/**
 * Returns the address of a database through a proxy that cuts the connection around its first COMMIT. Later connections
 * reach the database.
 */
export async function losingCommit(t: Test, databaseUrl: string, moment: LostCommit): Promise<string> {
  const { hostname, port: databasePort } = new URL(databaseUrl)
  const sockets = new Set<Socket>()
  let isLost = false
  const server = createServer((near) => {
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
