import { once } from 'node:events'
import { connect } from 'node:net'
import t from 'tap'
import { freePort } from '../support/other-program.ts'
import { startProgram } from '../support/program.ts'
import { sendRaw } from '../support/raw.ts'

/** True if something listens there. */
async function isOpen(host: string, port: number): Promise<boolean> {
  const socket = connect({ host, port })
  const opened = once(socket, 'connect').then(
    () => true,
    () => false,
  )
  return opened.finally(() => socket.destroy())
}

t.test('localhost is listened on at its IPv4 address alone', async (t) => {
  // Nothing has to be there: the service listens and is not ready.
  const DATABASE_URL = `postgres://service@127.0.0.1:${await freePort()}/inventory`
  const env = { HOST: 'localhost', PORT: '0', METRICS_PORT: '0', DATABASE_URL }
  const server = await startProgram(t, 'server', { env })
  const [, metricsPort] = await server.output(/metrics at http:\/\/\S+:(\d+)\/metrics/)
  const [, port] = await server.output(/listening at http:\/\/\S+:(\d+)/i)
  for (const listening of [Number(port), Number(metricsPort)]) {
    t.equal(await isOpen('127.0.0.1', listening), true)
    t.equal(await isOpen('::1', listening), false)
  }
  t.match(await sendRaw(Number(port), 'CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n'), /^HTTP\/1\.1 405 /)
  server.process.kill('SIGTERM')
  t.equal((await server.ended).code, 0)
})
