import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import t from 'tap'
import { freePort } from '../support/other-program.ts'
import { startProgram } from '../support/program.ts'
import { sendRaw } from '../support/raw.ts'

const ADDRESSES = ['::1', '127.0.0.1']

/** Makes `localhost` the name of an IPv6 and an IPv4 address in the process that imports it, whatever this machine's is. */
const namedTwice = `
import dns from 'node:dns'
import { syncBuiltinESMExports } from 'node:module'
const addresses = [{ address: '::1', family: 6 }, { address: '127.0.0.1', family: 4 }]
const { lookup } = dns
const lookupPromise = dns.promises.lookup
const found = ({ all, order } = {}) => {
  const ordered = order === 'ipv4first' ? addresses.toReversed() : addresses
  return all ? ordered : ordered[0]
}
dns.lookup = (host, options, callback = options) => {
  if (host !== 'localhost') return lookup(host, options, callback)
  const answer = found(typeof options === 'object' ? options : {})
  setImmediate(() => Array.isArray(answer) ? callback(null, answer) : callback(null, answer.address, answer.family))
}
dns.promises.lookup = async (host, options) =>
  host === 'localhost' ? found(options) : lookupPromise(host, options)
syncBuiltinESMExports()`

async function hasIPv6(): Promise<boolean> {
  const server = createServer().listen(0, '::1')
  return once(server, 'listening').then(
    () => {
      server.close()
      return true
    },
    () => false,
  )
}

/** True if something listens there. */
async function isOpen(host: string, port: number): Promise<boolean> {
  const socket = connect({ host, port })
  return once(socket, 'connect').then(
    () => {
      socket.destroy()
      return true
    },
    () => false,
  )
}

const skip = (await hasIPv6()) ? false : 'this machine has no IPv6'

t.test(
  'a name with several addresses is listened on at its first IPv4 address alone',
  { skip },
  async (t) => {
    const server = await startProgram(t, 'server', {
      env: {
        HOST: 'localhost',
        PORT: '0',
        METRICS_PORT: '0',
        // Nothing has to be there: the service listens and is not ready.
        DATABASE_URL: `postgres://service@127.0.0.1:${await freePort()}/inventory`,
        NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(namedTwice)}`,
      },
    })
    const [, metricsPort] = await server.output(/metrics at http:\/\/\S+:(\d+)\/metrics/)
    const [, port] = await server.output(/listening at http:\/\/\S+:(\d+)/i)
    for (const listening of [Number(port), Number(metricsPort)]) {
      t.strictSame(
        await Promise.all(ADDRESSES.map((address) => isOpen(address, listening))),
        [false, true],
        ADDRESSES.join(' and '),
      )
    }
    t.match(await sendRaw(Number(port), 'CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n'), /^HTTP\/1\.1 405 /)
    server.process.kill('SIGTERM')
    t.equal((await server.ended).code, 0)
  },
)
