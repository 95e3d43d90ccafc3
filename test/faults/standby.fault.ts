import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { eventually } from '../support/eventually.ts'
import { total } from '../support/exposition.ts'
import { expectOneHistory } from '../support/histories.ts'
import { callerOf, json, type Send } from '../support/http.ts'
import { type Load, startLoad } from '../support/load.ts'
import { metricsOf } from '../support/metrics.ts'
import { type MovingAddress, movingAddress } from '../support/moving-address.ts'
import { type Program, portOf, startProgram } from '../support/program.ts'
import { type ReplicatedPair, type ReplicatedServer, startPair } from '../support/replication.ts'
import { setSynchronousStandby } from '../support/synchronous-standby.ts'

const apiKey = 'a-key-for-tests-0123456789abcdefghijklm'
const pets = [1, 2, 3, 4, 5, 6, 7, 8]

/** How many lists the standby has served, or why it has not. */
type Reads = (result: string) => Promise<number>

interface Scene extends ReplicatedPair {
  readonly address: MovingAddress
  readonly readAddress: MovingAddress
  readonly server: Program
  readonly send: Send
  readonly reads: Reads
  /** How many lists had that `result`: what was read for them. */
  readonly lists: Reads
  /** Starts clients of that process and of one that reads from the primary alone. */
  startLoad(): Promise<Load>
}

/** A service that reads lists from the standby of a pair, and has found that it can. */
async function setUp(t: Test, env: Record<string, string> = {}): Promise<Scene> {
  const pair = await startPair(t, pets)
  const address = await movingAddress(t, pair.primary.url)
  const readAddress = await movingAddress(t, pair.standby.url)
  const common = { DATABASE_URL: address.url, API_KEYS: apiKey, PORT: '0' }
  const start = (more: Record<string, string>): Promise<Program> =>
    startProgram(t, 'server', { env: { ...common, ...more } })
  const server = await start({ READ_DATABASE_URL: readAddress.url, METRICS_PORT: '0', ...env })
  const { scrape } = await metricsOf(server)
  await server.output(/lists are read from the standby/)
  const port = await portOf(server)
  return {
    ...pair,
    address,
    readAddress,
    server,
    send: callerOf(port, { authorization: `Bearer ${apiKey}` }),
    reads: async (result) => total(await scrape(), 'inventory_standby_reads_total', { result }),
    lists: async (result) => total(await scrape(), 'inventory_lists_total', { result }),
    async startLoad() {
      const other = await portOf(await start({}))
      return startLoad(t, { ports: [port, port, other], clients: 18, apiKey, pets })
    },
  }
}

async function update(send: Send, quantity: number, pet = 1): Promise<number> {
  return (await send('PATCH', `/v1/inventory/${pet}`, json({ quantity }))).status
}

/** The quantity of the first pet in a list. */
async function listed(send: Send): Promise<number> {
  const { status, text } = await send('GET', '/v1/inventory')
  if (status !== 200) throw new Error(`The list is a ${status}: ${text}`)
  return JSON.parse(text)[0].quantity
}

async function configure(server: ReplicatedServer, ...settings: string[]): Promise<void> {
  for (const setting of settings) await server.query(`ALTER SYSTEM SET ${setting}`)
  await server.query('SELECT pg_reload_conf()')
}

t.test('lists are read from the standby, those that are unchanged from nowhere', async (t) => {
  const { send, reads, lists, standby } = await setUp(t)
  for (let quantity = 1; quantity <= 20; quantity++) {
    t.equal(await update(send, quantity), 200)
    t.equal(await listed(send), quantity)
  }
  t.equal(await reads('served'), 20)
  t.equal(await lists('read'), 1)
  t.equal(await lists('changed'), 19, 'of all but the first list, only the changes were read')
  await eventually('the list to be reused', async () => {
    const before = await reads('served')
    t.equal(await listed(send), 20)
    return (await reads('served')) === before ? true : undefined
  })
  await standby.kill()
  t.equal(await listed(send), 20, 'the standby is not needed where nothing was committed')
})

t.test('a standby that applies 30 ms late delays lists, and none lacks an update', async (t) => {
  const { primary, standby, reads, send, startLoad } = await setUp(t)
  await configure(standby, "recovery_min_apply_delay = '30ms'")
  for (let quantity = 1000; quantity < 1030; quantity++) {
    t.equal(await update(send, quantity), 200)
    t.equal(await listed(send), quantity)
  }
  t.equal(await update(send, 0), 200)
  const load = await startLoad()
  await load.served(2000)
  // One read serves many lists, the more the faster their callers are.
  await eventually('a hundred reads of the standby', async () =>
    (await reads('served')) > 100 ? true : undefined,
  )
  await expectOneHistory(t, load, pets, primary)
  t.equal(await reads('lagging'), 0)
})

t.test('a standby that applies too late is not waited for twice', async (t) => {
  const { primary, standby, reads, server, startLoad } = await setUp(t)
  const load = await startLoad()
  await load.served(300)
  await configure(standby, "recovery_min_apply_delay = '1h'")
  await server.output(/not used: it does not replay within 2 seconds/)
  const start = performance.now()
  await load.served(500)
  t.ok(performance.now() - start < 10_000, 'the primary serves lists meanwhile')
  const again = server.output(/not used: it does not replay[\s\S]*lists are read from the standby/)
  await configure(standby, "recovery_min_apply_delay = '0'")
  await again
  await load.served(300)
  t.ok((await reads('lagging')) < 3)
  await expectOneHistory(t, load, pets, primary)
})

t.test('either server is killed under load, again and again', async (t) => {
  const { primary, standby, reads, startLoad } = await setUp(t)
  const load = await startLoad()
  for (let round = 0; round < 3; round++) {
    await load.served(500)
    await standby.kill()
    await load.served(500)
    await standby.start()
    await load.served(500)
    const failing = load.next('list', 'failure')
    await primary.kill()
    await failing
    await primary.start()
    await load.served(500)
    const before = await reads('served')
    await eventually('the standby to be read again', async () =>
      (await reads('served')) > before ? true : undefined,
    )
  }
  t.ok((await reads('unreachable')) > 0)
  await expectOneHistory(t, load, pets, primary)
})

t.test('a standby that freezes holds up one list', async (t) => {
  const { primary, standby, startLoad, server } = await setUp(t)
  const load = await startLoad()
  await load.served(300)
  await standby.freeze()
  await server.output(/not used: it cannot be reached/)
  const start = performance.now()
  await load.served(500)
  t.ok(performance.now() - start < 10_000, 'the primary serves lists meanwhile')
  await expectOneHistory(t, load, pets, primary)
})

t.test('a standby that is promoted is not read, whatever it says from then on', async (t) => {
  const { primary, standby, send, reads, server, startLoad } = await setUp(t)
  const load = await startLoad()
  await load.served(300)
  await standby.promote()
  await standby.query('UPDATE inventory SET quantity = quantity + 1000000')
  await server.output(/not used: it is not a standby/)
  await load.served(500)
  await expectOneHistory(t, load, pets, primary)
  t.equal(await update(send, 7), 200)
  t.equal(await listed(send), 7)
  const served = await reads('served')
  t.equal(await listed(send), 7)
  t.equal(await reads('served'), served)
})

t.test('a failover moves the address to the standby, which is read as the primary then', async (t) => {
  const { primary, standby, address, reads, server, startLoad } = await setUp(t)
  await setSynchronousStandby(primary, '*')
  const load = await startLoad()
  await load.served(300)
  const failing = Promise.all([load.next('update', 'failure'), load.next('list', 'failure')])
  await primary.kill()
  await failing
  await standby.promote()
  await setSynchronousStandby(standby, '')
  address.leadTo(standby.url)
  await Promise.all([load.next('update', 'success'), load.next('list', 'success')])
  await server.output(/not used: it is not a standby/)
  const served = await reads('served')
  await load.served(500)
  t.equal(await reads('served'), served)
  await expectOneHistory(t, load, pets, standby)
})

t.test('after a switchover, the former primary is read once it is known to follow', async (t) => {
  const { primary, standby, address, readAddress, reads, startLoad } = await setUp(t)
  const load = await startLoad()
  await load.served(300)
  await primary.stop()
  await standby.promote()
  address.leadTo(standby.url)
  await primary.follow(standby)
  readAddress.leadTo(primary.url)
  await Promise.all([load.next('update', 'success'), load.next('list', 'success')])
  await standby.query('CHECKPOINT')
  const before = await reads('served')
  await eventually('the former primary to be read', async () => {
    await primary.query('CHECKPOINT')
    return (await reads('served')) > before ? true : undefined
  })
  await load.served(500)
  await expectOneHistory(t, load, pets, standby)
})

t.test('a standby that went on with the former primary is not read', async (t) => {
  const { primary, standby, address, readAddress, server, reads, startLoad } = await setUp(t)
  // Both servers of this pair are one history until the standby is promoted and the old primary goes on writing.
  await standby.promote()
  await primary.query('UPDATE inventory SET quantity = 13')
  for (let round = 0; round < 2000; round++) await primary.query('UPDATE inventory SET quantity = 13')
  // The former primary becomes a standby of nobody: its WAL is longer than that of the new one, and of another timeline.
  await primary.stop()
  await primary.follow({ ...standby, connection: 'host=127.0.0.1 port=1' })
  readAddress.leadTo(primary.url)
  address.leadTo(standby.url)
  const load = await startLoad()
  await load.served(300)
  await server.output(/not used: it is not known to follow the primary’s timeline/)
  await load.served(100)
  t.equal(await reads('served'), 0)
  await expectOneHistory(t, load, pets, standby)
})

t.test('a standby of another cluster is not read', async (t) => {
  const { primary, readAddress, server, reads, startLoad, send } = await setUp(t)
  const other = await startPair(t, pets)
  await other.primary.query('UPDATE inventory SET quantity = 4711')
  const load = await startLoad()
  await load.served(300)
  readAddress.leadTo(other.standby.url)
  readAddress.cut()
  await server.output(/not used: it belongs to another database cluster/)
  await load.served(500)
  await expectOneHistory(t, load, pets, primary)
  const served = await reads('served')
  t.equal(await update(send, 3), 200)
  t.equal(await listed(send), 3)
  t.equal(await reads('served'), served)
})

t.test(
  'a commit that the primary does not show yet is in no list, though the standby shows it',
  async (t) => {
    const { primary, standby, send, reads } = await setUp(t)
    t.equal(await update(send, 1), 200)
    t.equal(await listed(send), 1)
    // Commits wait for a standby that does not exist, and are on the one that does.
    await setSynchronousStandby(primary, 'nobody')
    const waiting = update(send, 2)
    await eventually('the standby to show the update', async () =>
      (await standby.query('SELECT FROM inventory WHERE pet_id = 1 AND quantity = 2')).length > 0
        ? true
        : undefined,
    )
    // Another commit, so that the kept list is not current.
    const other = primary.query(
      'SET synchronous_commit = local; UPDATE inventory SET quantity = 5 WHERE pet_id = 2',
    )
    await other
    t.equal(
      await listed(send),
      1,
      'the primary could still lose it in a failover, or show the former state to others',
    )
    t.equal(await listed(send), 1)
    t.ok((await reads('ahead')) > 0)
    await setSynchronousStandby(primary, '')
    t.ok([200, 503].includes(await waiting))
    t.equal(await listed(send), 2)
  },
)

t.test('updates that are acknowledged before they are on the disk are in every list', async (t) => {
  const { primary, send, startLoad } = await setUp(t)
  await configure(primary, 'synchronous_commit = off', "wal_writer_delay = '10s'")
  await setTimeout(500)
  for (let quantity = 1; quantity <= 5; quantity++) {
    t.equal(await update(send, quantity), 200)
    t.equal(await listed(send), quantity)
    t.equal(await listed(send), quantity)
  }
  await configure(primary, "wal_writer_delay = '10ms'")
  t.equal(await update(send, 0), 200)
  const load = await startLoad()
  await load.served(1000)
  await expectOneHistory(t, load, pets, primary)
})

t.test('a read that conflicts with recovery is made by the primary', async (t) => {
  const { primary, standby, send, reads } = await setUp(t)
  await configure(standby, "max_standby_streaming_delay = '0'")
  await primary.query("INSERT INTO inventory SELECT n, 0, 'available' FROM generate_series(9, 200000) n")
  for (let quantity = 1; (await reads('conflict')) === 0; quantity++) {
    if (quantity > 300) throw new Error('No read has conflicted with recovery')
    await primary.query('UPDATE inventory SET quantity = quantity WHERE pet_id % 20 = 1')
    t.equal(await update(send, quantity), 200)
    const [list] = await Promise.all([
      listed(send),
      setTimeout(Math.random() * 200).then(() => primary.query('VACUUM inventory')),
    ])
    if (list !== quantity) t.equal(list, quantity)
  }
  t.equal(await listed(send), await listed(send))
})
