import { type OutgoingHttpHeaders, request } from 'node:http'

/** One response, and the time from the connection to its last byte. */
export interface TimedAnswer {
  readonly status: number
  readonly etag: string | undefined
  readonly body: Buffer
  readonly milliseconds: number
}

/** Sends one request on its own connection. */
export function ask(
  url: string,
  { method = 'GET', headers, body }: { method?: string; headers: OutgoingHttpHeaders; body?: string },
): Promise<TimedAnswer> {
  return new Promise((resolve, reject) => {
    const start = performance.now()
    const outgoing = request(url, { method, headers, agent: false }, (incoming) => {
      const chunks: Buffer[] = []
      incoming.on('data', (chunk: Buffer) => chunks.push(chunk))
      incoming.on('error', reject)
      incoming.on('end', () => {
        const milliseconds = performance.now() - start
        const { statusCode = 0, headers } = incoming
        resolve({ status: statusCode, etag: headers.etag, body: Buffer.concat(chunks), milliseconds })
      })
    })
    outgoing.on('error', reject)
    outgoing.end(body)
  })
}
