import { lookup } from 'node:dns/promises'
import { once } from 'node:events'
import { createServer } from 'node:net'

/**
 * Resolves a host name to one address to listen on, IPv4 if it has one. For `localhost`, Fastify would listen on all of its addresses,
 * with a second server that lacks the listeners of this service.
 *
 * @throws the error of `lookup`, such as ENOTFOUND
 */
export async function listenAddress(host: string): Promise<string> {
  const { address } = await lookup(host, { order: 'ipv4first' })
  return address
}

/** Checks that a server could listen on a port. Throws the error of `listen`, such as EADDRINUSE. */
export async function checkPort(host: string, port: number): Promise<void> {
  const server = createServer().listen(port, host)
  await once(server, 'listening')
  server.close()
  await once(server, 'close')
}
