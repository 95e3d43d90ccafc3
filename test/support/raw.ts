import { once } from 'node:events'
import { connect } from 'node:net'

export type RawConnection = Awaited<ReturnType<typeof openRaw>>

/** Opens a connection on which a test writes bytes that no HTTP client would. */
export async function openRaw(port: number) {
  const socket = connect({ host: '127.0.0.1', port })
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
export function parseResponse(text: string): { status: number; headers: Map<string, string>; body: string } {
  const [head = '', ...rest] = text.split('\r\n\r\n')
  const [statusLine = '', ...lines] = head.split('\r\n')
  const headers = new Map<string, string>()
  for (const line of lines) {
    const colon = line.indexOf(':')
    headers.set(line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim())
  }
  return { status: Number(statusLine.split(' ')[1]), headers, body: rest.join('\r\n\r\n') }
}

/** Splits the responses that came on one connection. */
export function responsesIn(text: string): ReturnType<typeof parseResponse>[] {
  return text === '' ? [] : text.split(/(?=HTTP\/1\.1 \d)/).map(parseResponse)
}

/** The statuses of the responses that came on one connection. */
export function statusesIn(text: string): number[] {
  return responsesIn(text).map(({ status }) => status)
}
