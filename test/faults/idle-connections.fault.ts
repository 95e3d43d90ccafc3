import { once } from 'node:events'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { startService } from '../support/app.ts'
import { startEntrances } from '../support/balancer.ts'
import { openRaw } from '../support/raw.ts'

/** How long common clients and load balancers keep an idle connection, in seconds, and longer than a request may take. */
const PAUSES = [12, 61, 91, 121]

t.test('a connection is served after as long a pause as clients and load balancers make', async (t) => {
  const { port: server } = await startService(t)
  const entrances = await startEntrances(t, server)
  const request = 'GET /livez HTTP/1.1\r\nHost: x\r\n\r\n'
  await Promise.all(
    entrances.flatMap(([name, port]) =>
      PAUSES.map(async (seconds) => {
        const { socket } = await openRaw(port)
        socket.write(request)
        await once(socket, 'data')
        await setTimeout(seconds * 1000)
        t.notOk(socket.readableEnded, `${name}, ${seconds} seconds: still open`)
        socket.write(request)
        const [answer] = await once(socket, 'data')
        t.match(String(answer), /^HTTP\/1\.1 200 /, `${name}, ${seconds} seconds`)
        socket.destroy()
      }),
    ),
  )
})
