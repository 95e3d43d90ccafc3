import { once } from 'node:events'
import { Server as HttpServer } from 'node:http'
import type { Server } from 'node:net'
import type { Test } from 'tap'

/** Has a server listen on a free port of 127.0.0.1 until the test ends, and returns the port. */
export async function listen(t: Test, server: Server): Promise<number> {
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
