import { lookup } from 'node:dns/promises'

/**
 * Resolves a host name to the one address to listen on: its first IPv4 address, or its first IPv6 address if it has no
 * other. Given the name `localhost`, Fastify would listen on each of its addresses, with a second server that has none of
 * the listeners of this service. An IP address is returned as it is.
 *
 * @throws what `lookup` does, such as ENOTFOUND
 */
export async function listenAddress(host: string): Promise<string> {
  const { address } = await lookup(host, { order: 'ipv4first' })
  return address
}
