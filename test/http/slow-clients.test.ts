import type { Socket } from 'node:net'
import t from 'tap'
import { longLimits, startService } from '../support/app.ts'
import { readStock } from '../support/database.ts'
import { isError } from '../support/http.ts'
import { authorization, listRequest, updateRequest } from '../support/messages.ts'
import { openRaw, parseResponse, sendRaw, statusesIn } from '../support/raw.ts'

/** Far more than the service has connections to the database; this process holds both ends of each. */
const COUNT = 200

/** How long a request may take to arrive, so short that the test need not wait for production's ten seconds. */
const ARRIVAL_MS = 2000

const entries = ['1,0,available']
const halfHead = listRequest().slice(0, -2)
const halfBody = updateRequest(7).slice(0, -1)

/** Sends one byte after the other for as long as the server listens. */
function trickle(socket: Socket, byte: string): void {
  const timer = setInterval(() => socket.write(byte), 500)
  socket.once('close', () => clearInterval(timer))
}

t.test(`${COUNT} clients that never end their request each get a 408, and hold up nobody`, async (t) => {
  const timings = { app: { ...longLimits.app, arrivalMs: ARRIVAL_MS } }
  const { port, send, update, database } = await startService(t, entries, { timings })
  const slow = await Promise.all(
    Array.from({ length: COUNT }, async (_, index) => {
      const connection = await openRaw(port)
      const [start, more] = index % 2 === 0 ? [`${halfHead}X-Slow: `, 'x'] : [halfBody, ' ']
      connection.socket.write(start.replace('Content-Length: 14', 'Content-Length: 1000'))
      // Every other two send nothing more.
      if (index % 4 < 2) trickle(connection.socket, more)
      return connection
    }),
  )
  const answered = sendRaw(port, halfBody.replace(authorization, ''))
  const silent = sendRaw(port, '')
  let waiting = true
  const answers = Promise.all(slow.map(({ received }) => received)).finally(() => (waiting = false))
  let served = 0
  for (; waiting; served++) {
    const { status, text } = await update(1, served % 1000)
    const list = await send('GET', '/v1/inventory')
    if (status !== 200 || list.text !== `[${text}]`)
      throw new Error(`${status} ${text}, then ${list.status} ${list.text}`)
  }
  t.ok(served > 0, `${served} updates and lists meanwhile`)
  for (const text of await answers) isError(t, parseResponse(text), 408, 'request_timeout')
  t.strictSame(statusesIn(await answered), [401], 'an answered request gets no second answer')
  t.equal(await silent, '', 'a connection on which nothing was asked gets no answer')
  // No part of a request was taken for a whole one.
  t.equal(await readStock(database), `1,${(served - 1) % 1000},available`)
})

t.test('a client that keeps its side open after an error, and sends on, is disconnected', async (t) => {
  const { port } = await startService(t)
  const { socket, received } = await openRaw(port, { allowHalfOpen: true })
  socket.write('no HTTP\r\n\r\n')
  trickle(socket, 'x')
  t.match(await received, /^HTTP\/1\.1 400 /)
})
