import type { RequestListener } from 'node:http'
import type { Test } from 'tap'
import { type ConnectionLimits, connectionLimits } from '../../src/http/connections/guard.ts'
import { HttpServer } from '../../src/http/connections/http-server.ts'
import { listen } from './listen.ts'

/**
 * Starts a server with the connections of the service and with requests of a test's own. It has no timeout by default, and its
 * responses say when their connection closes.
 */
export async function startHttpServer(
  t: Test,
  handler: RequestListener,
  limits: Partial<ConnectionLimits> = {},
) {
  const http = new HttpServer({
    onRefused: () => {},
    arrivalMs: 60_000,
    drainMs: 0,
    limits: { ...connectionLimits, stallMs: 60_000, ...limits },
  })
  const server = http.create((request, response) => {
    if (http.closesAfter(response)) response.setHeader('connection', 'close')
    handler(request, response)
  })
  return { http, server, port: await listen(t, server) }
}
