import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request,
  type ServerResponse,
} from 'node:http'
import type { Test } from 'tap'
import { listen } from './listen.ts'

/**
 * What the front does to a request: sends nothing, or part of a body and no more; closes the connection cleanly in the
 * middle of a body; resets it once the request is in; answers with a proxy's page for people; or puts the request off
 * until a date, or for a second or an hour.
 */
export type Fault =
  | 'stall'
  | 'stall in the body'
  | 'cut in the body'
  | 'reset'
  | '200 page'
  | '403 page'
  | '502 page'
  | 'date'
  | '1 second'
  | '1 hour'

/** Decides what happens to a request; undefined hands it on to the service. */
export type Script = (request: IncomingMessage) => Fault | undefined | Promise<Fault | undefined>

export interface Front {
  readonly port: number
  /** The requests so far. */
  readonly requests: readonly SeenRequest[]
}

interface SeenRequest {
  readonly method: string
  readonly headers: IncomingHttpHeaders
  /** When it came, in milliseconds since 1970. */
  readonly at: number
  /** When the next one of its method may come, by the date that it was put off to. */
  notBefore: number
}

/** Starts a server that behaves badly by a script, in front of the service at `port`. */
export async function startFront(t: Test, port: number, script: Script): Promise<Front> {
  const requests: SeenRequest[] = []
  const server = createServer((incoming, outgoing) => {
    const { method = '', headers } = incoming
    const seen = { method, headers, at: Date.now(), notBefore: 0 }
    requests.push(seen)
    const handle = async (): Promise<void> => {
      const fault = await script(incoming)
      if (fault === undefined) pass(incoming, outgoing, port)
      else incoming.resume().on('end', () => commit(fault, outgoing, seen))
    }
    handle().catch((error: Error) => outgoing.destroy(error))
  })
  return { port: await listen(t, server), requests }
}

/** Takes the failures of each method one after the other, and then none. */
export function inTurn(faults: Readonly<Record<string, readonly Fault[]>>): Script {
  const left = new Map(Object.entries(faults).map(([method, list]) => [method, [...list]]))
  return ({ method = '' }) => left.get(method)?.shift()
}

function pass(incoming: IncomingMessage, outgoing: ServerResponse, port: number): void {
  const { method, headers, url: path } = incoming
  const onward = request({ host: '127.0.0.1', port, method, headers, path }, (answer) => {
    outgoing.writeHead(answer.statusCode ?? 500, answer.headers)
    answer.pipe(outgoing)
  })
  onward.on('error', (error) => outgoing.destroy(error))
  incoming.pipe(onward)
}

function commit(fault: Fault, outgoing: ServerResponse, seen: SeenRequest): void {
  switch (fault) {
    case 'stall':
      break
    case 'stall in the body':
    case 'cut in the body':
      outgoing.writeHead(200, { 'content-type': 'application/json', 'content-length': 1000 })
      outgoing.write('[{"petId":1,')
      if (fault === 'cut in the body') outgoing.socket?.end()
      break
    case 'reset':
      outgoing.socket?.resetAndDestroy()
      break
    case '200 page':
    case '403 page':
    case '502 page':
      outgoing.writeHead(Number(fault.slice(0, 3)), { 'content-type': 'text/html' })
      outgoing.end('<html>\n<body>\n<h1>A page for people</h1>\n</body>\n</html>\n')
      break
    case 'date': {
      // A date has whole seconds.
      seen.notBefore = Math.ceil(Date.now() / 1000 + 1) * 1000
      putOff(outgoing, new Date(seen.notBefore).toUTCString())
      break
    }
    case '1 second':
      putOff(outgoing, '1')
      break
    case '1 hour':
      putOff(outgoing, '3600')
      break
  }
}

function putOff(outgoing: ServerResponse, retryAfter: string): void {
  outgoing.writeHead(503, { 'retry-after': retryAfter, 'content-type': 'application/json' })
  outgoing.end('{"code":"service_unavailable","message":"Try again shortly.","status":503}')
}
