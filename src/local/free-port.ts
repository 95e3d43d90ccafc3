import { once } from 'node:events'
import { createServer } from 'node:net'

/**
 * Listens on a port for a moment and returns it. Without a port, the system chooses one.
 *
 * @throws the error of `listen`, for example if the port is in use
 */
export async function freePort(host: string, port = 0): Promise<number> {
  const server = createServer().listen(port, host)
  await once(server, 'listening')
  const address = server.address()
  server.close()
  await once(server, 'close')
  if (typeof address !== 'object' || address === null) throw new Error('The system assigned no port')
  return address.port
}
