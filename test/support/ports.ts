import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { Server as HttpServer } from 'node:http'
import { createServer, type Server } from 'node:net'
import type { Test } from 'tap'

/** Has a server listen on a free port of 127.0.0.1 until the test ends, and returns the port. */
export async function listen(t: Pick<Test, 'teardown'>, server: Server): Promise<number> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    if (server instanceof HttpServer) server.closeAllConnections()
    server.close()
  })
  const address = server.address()
  if (typeof address !== 'object' || address === null)
    throw new Error('The operating system assigned no port')
  return address.port
}

/**
 * A port of 127.0.0.1 that nobody listens on. It is below those that Linux gives to outgoing connections, one of which could take
 * it before the test uses it.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(10_000, 32_000)
    try {
      const server = createServer().listen(port, '127.0.0.1')
      await once(server, 'listening')
      server.close()
      return port
    } catch {
      // It is in use.
    }
  }
}
