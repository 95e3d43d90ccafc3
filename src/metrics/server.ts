import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import { isIPv6 } from 'node:net'
import type { Logger } from 'pino'
import { listenAddress } from '../http/connections/listen-address.ts'
import { expositionType } from './families.ts'

export interface MetricsServerOptions {
  readonly host: string
  readonly port: number
  /** The metrics of this moment, as text for Prometheus. */
  readonly scrape: () => Promise<string>
  readonly log: Logger
}

/** A server that listens. */
export interface MetricsServer {
  /** Ends at once: what is cut off is asked for again. */
  close(): Promise<void>
}

/**
 * Serves `/metrics` for Prometheus on a port of its own, which needs no key and so must not be open to everybody.
 *
 * @throws what `listen` does, a port in use for one
 */
export async function serveMetrics({
  host,
  port,
  scrape,
  log,
}: MetricsServerOptions): Promise<MetricsServer> {
  const server = createServer({ requestTimeout: 10_000 }, async ({ method, url }, response) => {
    if (url?.split('?', 1)[0] !== '/metrics') {
      answer(response, 404, 'There is only /metrics here.\n')
    } else if (method !== 'GET' && method !== 'HEAD') {
      response.setHeader('allow', 'GET, HEAD')
      answer(response, 405, 'Only GET and HEAD are allowed here.\n')
    } else {
      try {
        answer(response, 200, await scrape(), expositionType)
      } catch (err) {
        log.error({ err }, 'the metrics could not be collected')
        answer(response, 500, 'The metrics could not be collected.\n')
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

function answer(
  response: ServerResponse,
  status: number,
  text: string,
  type = 'text/plain; charset=utf-8',
): void {
  response.writeHead(status, { 'content-type': type, 'content-length': Buffer.byteLength(text) }).end(text)
}

function addressOf(address: ReturnType<ReturnType<typeof createServer>['address']>): string {
  if (typeof address !== 'object' || address === null) return String(address)
  return `http://${isIPv6(address.address) ? `[${address.address}]` : address.address}:${address.port}`
}
