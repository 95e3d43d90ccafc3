import type { RequestListener, Server } from 'node:http'
import { pino } from 'pino'
import type { Test } from 'tap'
import { type HttpLimits, HttpServer, httpLimits } from '../../src/http/connections/http-server.ts'
import { RequestStatistics } from '../../src/http/connections/request-statistics.ts'
import { listen } from './listen.ts'

/** The connections of the service with requests of a test's own. */
export interface TestHttpServer {
  readonly http: HttpServer
  readonly server: Server
  readonly port: number
  readonly statistics: RequestStatistics
}

/** Starts a server that has no timeout unless told otherwise. Requests for `/urgent` are urgent. */
export async function startHttpServer(
  t: Test,
  handler: RequestListener,
  { stallMs = 60_000, ...limits }: Partial<HttpLimits> & { readonly stallMs?: number } = {},
): Promise<TestHttpServer> {
  const statistics = new RequestStatistics()
  const http = new HttpServer({
    statistics,
    log: pino({ level: 'silent' }),
    arrivalMs: 60_000,
    stallMs,
    isUrgent: ({ url }) => url === '/urgent',
    limits: { ...httpLimits, ...limits },
  })
  const server = http.create(handler)
  return { http, server, port: await listen(t, server), statistics }
}
