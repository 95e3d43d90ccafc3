import { type Agent, type IncomingHttpHeaders, type OutgoingHttpHeaders, request } from 'node:http'

export interface Answer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  /** The body, byte for byte as it came. */
  readonly body: Buffer
  readonly text: string
}

export interface Message {
  readonly headers?: OutgoingHttpHeaders
  readonly body?: string | Buffer
}

export type Send = (method: string, path: string, message?: Message) => Promise<Answer>

/** Sends one request over a connection of its own. */
export function callerOf(port: number, common: OutgoingHttpHeaders = {}, agent?: Agent): Send {
  return (method, path, { headers = {}, body } = {}) =>
    new Promise((resolve, reject) => {
      const outgoing = request(
        { host: '127.0.0.1', port, method, path, agent: agent ?? false, headers: { ...common, ...headers } },
        (incoming) => {
          const chunks: Buffer[] = []
          incoming.on('data', (chunk: Buffer) => chunks.push(chunk))
          incoming.on('error', reject)
          incoming.on('end', () => {
            const body = Buffer.concat(chunks)
            resolve({
              status: incoming.statusCode ?? 0,
              headers: incoming.headers,
              body,
              text: body.toString(),
            })
          })
        },
      )
      outgoing.on('error', reject)
      outgoing.end(body)
    })
}

/** A message with a JSON body, and with further headers. */
export function json(body: string | object, headers: OutgoingHttpHeaders = {}): Message {
  return {
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  }
}
