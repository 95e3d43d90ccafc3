import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Test } from 'tap'
import { createSender } from '../support/http.ts'
import { listen } from '../support/ports.ts'

type Handle = (response: ServerResponse) => unknown

const sendPart: Handle = (response) => {
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': 1000 })
  response.write('[{"petId":1,')
}

/** Answers as a proxy does, with a page for people. */
const page =
  (status: number): Handle =>
  (response) =>
    response
      .writeHead(status, { 'content-type': 'text/html' })
      .end('<html>\n<body>\n<h1>A page for people</h1>\n</body>\n</html>\n')

const putOff =
  (retryAfter: () => string, code = 'service_unavailable'): Handle =>
  (response) =>
    response
      .setHeader('retry-after', retryAfter())
      .writeHead(503, { 'content-type': 'application/json' })
      .end(`{"code":"${code}","message":"Try again shortly.","status":503}`)

/** What the front can do once a request is in, instead of handing it on. */
const faults = {
  stall: () => {},
  'stall in the body': sendPart,
  'cut in the body'(response: ServerResponse) {
    sendPart(response)
    response.socket?.end()
  },
  reset: (response: ServerResponse) => response.socket?.resetAndDestroy(),
  '200 page': page(200),
  '403 page': page(403),
  '502 page': page(502),
  // A second from now at least; a date has whole seconds.
  date: putOff(() => new Date(Math.ceil(Date.now() / 1000 + 1) * 1000).toUTCString()),
  '1 second': putOff(() => '1'),
  unchanged: putOff(() => '1', 'nothing_changed'),
  '1 hour': putOff(() => '3600'),
} as const

export type Fault = keyof typeof faults

/** Decides what happens to a request; undefined hands it on to the service. */
export type Script = (request: IncomingMessage) => Fault | undefined | Promise<Fault | undefined>

/**
 * Starts a server that behaves badly by a script, in front of the service at `port`. `requests` are those so far;
 * `stopListening` has it answer them, and refuse further connections.
 */
export async function startFront(t: Test, port: number, script: Script) {
  const requests: { method: string; headers: IncomingHttpHeaders }[] = []
  const server = createServer((incoming, outgoing) => {
    const { method = '', headers } = incoming
    requests.push({ method, headers })
    const handle = async (): Promise<void> => {
      const fault = await script(incoming)
      if (fault === undefined) await pass(incoming, outgoing, port)
      else incoming.resume().on('end', () => faults[fault](outgoing))
    }
    handle().catch((error: Error) => outgoing.destroy(error))
  })
  return { port: await listen(t, server), requests, stopListening: () => server.close() }
}

/** Takes the failures of each method one after the other, and then none. */
export function inTurn(faults: Readonly<Record<string, readonly Fault[]>>): Script {
  const left = new Map(Object.entries(faults).map(([method, list]) => [method, [...list]]))
  return ({ method = '' }) => left.get(method)?.shift()
}

async function pass(incoming: IncomingMessage, outgoing: ServerResponse, port: number): Promise<void> {
  const { method = '', url = '', headers } = incoming
  const message = { headers, body: Buffer.concat(await incoming.toArray()) }
  const answer = await createSender(port)(method, url, message)
  // A connection that is kept would outlive the port.
  outgoing.writeHead(answer.status, { ...answer.headers, connection: 'close' }).end(answer.body)
}
