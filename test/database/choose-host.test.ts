import t from 'tap'
import { parseAddress } from '../../src/database/address.ts'
import { chooseHost } from '../../src/database/choose-host.ts'
import { freePort } from '../support/other-program.ts'
import { startOwnPair } from '../support/own-server.ts'
import { startRelay } from '../support/relay.ts'

const { primary, standby } = await startOwnPair(t)
const hostOf = ({ url }: { url: string }): string => new URL(url).host
const dead = `127.0.0.1:${await freePort()}`

/** An address with these hosts, in this order. */
function addressOf(hosts: readonly string[], target?: string, password = 'of-a-test'): string {
  const parameters = target === undefined ? '' : `?target_session_attrs=${target}`
  return `postgres://service:${password}@${hosts.join(',')}/postgres${parameters}`
}

t.test('a command uses the first host that matches target_session_attrs', async (t) => {
  const [writable, readable] = [hostOf(primary), hostOf(standby)]
  // Ends each connection at its first statement, a message that begins with P or Q.
  const breaking = await startRelay(t, {
    target: () => new URL(primary.url),
    onConnection: (near) => near.on('data', (data) => /^[PQ]/.test(String(data)) && near.destroy()),
  })
  for (const [target, hosts, chosen] of [
    [undefined, [dead, readable, writable], writable],
    ['read-write', [readable, writable], writable],
    ['any', [dead, readable, writable], readable],
    ['any', [dead], dead],
    [undefined, [hostOf(breaking), writable], writable],
  ] as const) {
    const url = await chooseHost(addressOf(hosts, target))
    t.equal(parseAddress(url).hosts[0].name, chosen, `${target} of ${hosts.join()}`)
  }
})

/** Returns why no host is used. */
async function failureOf(address: string): Promise<string> {
  const error = await chooseHost(address).then(
    () => undefined,
    (error: unknown) => error,
  )
  const { cause } = error instanceof Error ? error : {}
  return cause instanceof Error ? cause.message : 'no error'
}

t.test('if no host matches, the message says why, once for each host', async (t) => {
  const readable = hostOf(standby)
  const isStandby = 'the server is a standby, which is read-only'
  t.equal(await failureOf(addressOf([readable], 'read-write')), isStandby)
  t.equal(
    await failureOf(addressOf([readable, dead])),
    `no host can be used: ${readable}: ${isStandby}; ${dead}: connect ECONNREFUSED ${dead}`,
  )
})

t.test('a read-only primary is used only with target_session_attrs=any', async (t) => {
  t.teardown(() => primary.query('ALTER ROLE service RESET default_transaction_read_only'))
  await primary.query('ALTER ROLE service SET default_transaction_read_only = on')
  t.equal(
    await failureOf(addressOf([hostOf(primary)], 'read-write')),
    'the server is read-only: default_transaction_read_only is on',
  )
  const chosen = await chooseHost(addressOf([hostOf(primary)], 'any'))
  t.equal(parseAddress(chosen).hosts[0].name, hostOf(primary))
})

t.test('if a host refuses the login, no other one is asked', async (t) => {
  const hosts = [hostOf(primary), dead]
  t.match(
    await failureOf(addressOf(hosts, undefined, 'another')),
    /^password authentication failed for user "service"$/,
  )
})
