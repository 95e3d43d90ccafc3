import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Logger } from 'pino'
import { prometheusContentType } from 'prom-client'
import { listenAddress, urlOf } from '../http/connections/listen-address.ts'

export interface MetricsServerOptions {
  readonly host: string
  readonly port: number
  /** Returns the current metrics in Prometheus's text format. */
  readonly scrape: () => Promise<string>
  readonly log: Logger
}

/** A server that is listening. */
export interface MetricsServer {
  /** Closes at once, without a drain period: Prometheus scrapes again. */
  close(): Promise<void>
}

/**
 * Serves `/metrics` for Prometheus on a port of its own. It requires no API key, so the port must not be public.
 *
 * @throws the error of `listen`, such as EADDRINUSE
 */
export async function serveMetrics({
  host,
  port,
  scrape,
  log,
}: MetricsServerOptions): Promise<MetricsServer> {
  const server = createServer({ requestTimeout: 10_000 }, async ({ method, url }, response) => {
    if (url?.split('?', 1)[0] !== '/metrics') {
      respond(response, 404, 'Not found. The metrics are at /metrics.\n')
    } else if (method !== 'GET' && method !== 'HEAD') {
      response.setHeader('allow', 'GET, HEAD')
      respond(response, 405, 'Method not allowed. Use GET or HEAD.\n')
    } else {
      try {
        respond(response, 200, await scrape(), prometheusContentType)
      } catch (err) {
        log.error({ err }, 'the metrics could not be collected')
        respond(response, 500, 'The metrics could not be collected.\n')
      }
    }
  })
  server.listen(port, await listenAddress(host))
  await once(server, 'listening')
  log.info(`metrics at ${addressOf(server.address())}/metrics`)
  return {
    async close() {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    },
  }
}

function respond(
  response: ServerResponse,
  status: number,
  text: string,
  type = 'text/plain; charset=utf-8',
): void {
  response.writeHead(status, { 'content-type': type, 'content-length': Buffer.byteLength(text) }).end(text)
}

function addressOf(address: string | AddressInfo | null): string {
  if (typeof address !== 'object' || address === null) return String(address)
  return urlOf(address.address, address.port)
}
