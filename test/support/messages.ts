/** Bytes of requests, for tests that write them on a connection themselves. */
import { once } from 'node:events'
import { connect } from 'node:net'
import type { Test } from 'tap'
import { apiKey } from './app.ts'

export const host = 'Host: inventory.test\r\n'
export const authorization = `Authorization: Bearer ${apiKey}\r\n`
export const close = 'Connection: close\r\n'
export const json = 'Content-Type: application/json\r\n'

/** A list, with further header lines. */
export function listRequest(headers = ''): string {
  return `GET /v1/inventory HTTP/1.1\r\n${host}${authorization}${headers}\r\n`
}

/** An update of pet 1, with further header lines. */
export function updateRequest(quantity: number, headers = ''): string {
  const body = JSON.stringify({ quantity })
  return `PATCH /v1/inventory/1 HTTP/1.1\r\n${host}${authorization}${json}${headers}Content-Length: ${body.length}\r\n\r\n${body}`
}

/** Asks for a list, and reads nothing of it once it has begun to come. */
export async function openUnread(t: Test, port: number): Promise<void> {
  const socket = connect({ host: '127.0.0.1', port })
  t.teardown(() => socket.destroy())
  socket.on('error', () => {})
  socket.write(listRequest())
  await once(socket, 'readable')
}
