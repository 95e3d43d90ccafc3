import { once } from 'node:events'
import { connect } from 'node:net'
import type { Answer } from './http.ts'

/** Opens a connection on which a test writes bytes that no HTTP client would; by default, it ends with the side of the server. */
export async function openRaw(port: number, { allowHalfOpen = false } = {}) {
  const socket = connect({ host: '127.0.0.1', port, allowHalfOpen })
  const chunks: Buffer[] = []
  socket.on('data', (chunk) => chunks.push(chunk))
  // A reset after the answer takes nothing away from what was received.
  socket.on('error', () => {})
  /** All that came back when the server has closed the connection. */
  const received = new Promise<string>((resolve) => {
    socket.once('close', () => resolve(Buffer.concat(chunks).toString()))
  })
  await once(socket, 'connect')
  return { socket, received }
}

/** Sends bytes and returns what came back once the server has closed the connection. */
export async function sendRaw(port: number, bytes: string | Buffer): Promise<string> {
  const { socket, received } = await openRaw(port)
  socket.write(bytes)
  return received
}

/** Splits one response into its parts. */
export function parseResponse(response: string): Omit<Answer, 'body'> {
  const [head = '', ...rest] = response.split('\r\n\r\n')
  const [statusLine = '', ...lines] = head.split('\r\n')
  const fields = lines.map((line) => {
    const colon = line.indexOf(':')
    return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()]
  })
  const status = Number(statusLine.split(' ')[1])
  return { status, headers: Object.fromEntries(fields), text: rest.join('\r\n\r\n') }
}

/** Splits the responses that came on one connection. */
export function responsesIn(text: string): Omit<Answer, 'body'>[] {
  return text === '' ? [] : text.split(/(?=HTTP\/1\.1 \d)/).map(parseResponse)
}

/** The statuses of the responses that came on one connection. */
export function statusesIn(text: string): number[] {
  return responsesIn(text).map(({ status }) => status)
}
