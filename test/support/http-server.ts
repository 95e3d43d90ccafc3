import type { RequestListener, Server } from 'node:http'
import type { Test } from 'tap'
import { type ConnectionLimits, connectionLimits } from '../../src/http/connections/guard.ts'
import { HttpServer } from '../../src/http/connections/http-server.ts'
import { listen } from './listen.ts'

/** The connections of the service with requests of a test's own. */
export interface TestHttpServer {
  readonly http: HttpServer
  readonly server: Server
  readonly port: number
}

/** Starts a server that has no timeout unless told otherwise, and whose responses say when their connection closes. */
export async function startHttpServer(
  t: Test,
  handler: RequestListener,
  limits: Partial<ConnectionLimits> = {},
): Promise<TestHttpServer> {
  const http = new HttpServer({
    onRefused: () => {},
    arrivalMs: 60_000,
    limits: { ...connectionLimits, stallMs: 60_000, ...limits },
  })
  const server = http.create((request, response) => {
    if (http.closesAfter(response)) response.setHeader('connection', 'close')
    handler(request, response)
  })
  return { http, server, port: await listen(t, server) }
}
