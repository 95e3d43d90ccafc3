import { once } from 'node:events'
import { connect } from 'node:net'
import { networkInterfaces } from 'node:os'
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

/** Makes `localhost` the name of an IPv6 and an IPv4 address in the process that imports it, whatever this machine's is. */
const namedTwice = `
import dns from 'node:dns'
import { syncBuiltinESMExports } from 'node:module'
const addresses = [{ address: '::1', family: 6 }, { address: '127.0.0.1', family: 4 }]
const { lookup } = dns
dns.lookup = (host, options, done) => {
  if (host !== 'localhost') return lookup(host, options, done)
  setImmediate(done ?? options, null, ...(options.all ? [addresses] : ['::1', 6]))
}
dns.promises.lookup = async (host, { order }) => addresses[order === 'ipv4first' ? 1 : 0]
syncBuiltinESMExports()`

const hasIPv6 = Object.values(networkInterfaces()).some((all) =>
  all?.some(({ address }) => address === '::1'),
)
const skip = !hasIPv6 && 'this machine has no IPv6'

t.test(
  'a name with several addresses is listened on at its first IPv4 address alone',
  { skip },
  async (t) => {
    // Nothing has to be there: the service listens and is not ready.
    const DATABASE_URL = `postgres://service@127.0.0.1:${await freePort()}/inventory`
    const NODE_OPTIONS = `--import data:text/javascript,${encodeURIComponent(namedTwice)}`
    const env = { HOST: 'localhost', PORT: '0', METRICS_PORT: '0', DATABASE_URL, NODE_OPTIONS }
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
  },
)
