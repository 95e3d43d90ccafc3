/**
 * Random callers of two processes beside random faults. An episode is a few faults, after which an oracle reads the history: no update
 * is lost, doubled or late, no list is older than its request, and what is listed is what SQL says. With
 * `SECONDS=60 SEED=7`, it makes the faults of that seed for a minute.
 */
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { ENTRY_JSON } from '../../src/inventory/entry/columns.ts'
import { inventory, succeed } from '../support/command.ts'
import { readStock } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { errorsIn, readChanges } from '../support/history.ts'
import { expectOneHistory, startLoad } from '../support/load.ts'
import { cutNetwork, reasonNotToCut } from '../support/network.ts'
import { hold } from '../support/on-server.ts'
import { SERVICE, startOwnServer } from '../support/own-server.ts'
import { freePort } from '../support/ports.ts'
import { apiKey, startServer } from '../support/program.ts'
import { createRandom } from '../support/random.ts'
import { startRelay } from '../support/relay.ts'
import { AT_COMMIT, trigger } from '../support/triggers.ts'
import { lateIn, startWriters } from '../support/writers.ts'

const { SECONDS = '600', SEED = String(Date.now() % 1_000_000) } = process.env
const { random, pick } = createRandom(Number(SEED))

const pets = [1, 2, 3, 4, 5, 6, 7, 8]
const writtenPets = [9, 10, 11, 12]
const all = Array.from({ length: 3000 }, (_, index) => index + 1)

/** The kernel sends what was lost again 12.6 and 25.4 s after the first time. */
const [CUT_MS, SENT_AGAIN_MS] = [13_000, 26_000]

const database = await startOwnServer(t, { max_connections: '200' })
await database.query(
  `CREATE TABLE limits (id integer PRIMARY KEY, most integer); INSERT INTO limits VALUES (1, 2000000000);
   CREATE TABLE audit (pet_id bigint, quantity integer); CREATE SCHEMA elsewhere;
   GRANT SELECT, INSERT, UPDATE ON limits, audit TO ${SERVICE};
   CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
     INSERT INTO public.audit VALUES (new.pet_id, new.quantity); RETURN NULL; END $$;
   CREATE TRIGGER audit AFTER UPDATE ON inventory FOR EACH ROW EXECUTE FUNCTION audit()`,
)
await succeed(t, database.superuserUrl, 'history on')

const canCut = (await reasonNotToCut(t)) === false
const services: [Service, ...Service[]] = [await startProcess(), await startProcess()]
type Service = Awaited<ReturnType<typeof startProcess>>

/** Starts a process behind a relay to the database that breaks the connection of every n-th request, or response, while n is not 0. */
async function startProcess() {
  const every = { request: 0, response: 0 }
  let chunks = 0
  const breakAt = (direction: keyof typeof every) => (bytes: Buffer) =>
    every[direction] > 0 && ++chunks % every[direction] === 0 ? undefined : bytes
  const filters = { towardsDatabase: breakAt('request'), towardsClient: breakAt('response') }
  const relay = await startRelay(t, database.url, filters)
  const port = await freePort()
  const start = () =>
    startServer(t, { DATABASE_URL: relay.url, API_KEYS: `caller:${apiKey}`, PORT: String(port) })
  const service = { every, relay, port, server: await start() }
  const restart = async (signal: NodeJS.Signals): Promise<void> => {
    service.server.process.kill(signal)
    await service.server.ended
    service.server = await start()
  }
  return Object.assign(service, { restart })
}

type End = () => Promise<unknown>

interface Fault {
  readonly name: string
  /** How requests may fail, but for a 503: by a status, or 0 where the connection breaks. */
  readonly failures?: readonly number[]
  /** Makes the fault, for one of the processes. Returns what ends it, if it does not end on its own. */
  readonly make: (number: number, service: Service, t: Test) => Promise<End | undefined> | Promise<void>
}

const choose = (texts: readonly string[], number: number): string =>
  `SET lock_timeout = '1s'; ${texts[number % texts.length]}`.replaceAll('NUMBER', String(number))

/** Runs a statement, unless it waits for what another fault has locked, or the other one makes it impossible. */
const run = (name: string, ...texts: string[]): Fault => ({
  name,
  make: async (number) => void (await database.query(choose(texts, number)).catch(() => {})),
})

const lock = (name: string, ...texts: string[]): Fault => ({
  name,
  make: async (number, _, t) => {
    const release = await hold(t, database.superuserUrl, choose(texts, number)).catch(() => undefined)
    return async () => release?.().catch(() => {})
  },
})

const act = (name: string, statement: string, failures: number[] = [], definition?: string): Fault => ({
  name: `a trigger ${name}`,
  failures,
  make: async (number) => {
    await database.query(choose([trigger(statement, definition)], number)).catch(() => {})
    return () => database.query('DROP FUNCTION IF EXISTS act CASCADE')
  },
})

const [HIT, PET] = ['(new.quantity + NUMBER) % 5 = 0', 'new.pet_id = 1 + NUMBER % 12']
const LIST = `SELECT '[' || string_agg(${ENTRY_JSON}, ',' ORDER BY pet_id) || ']' AS list FROM inventory AS entry`
const DOUBLED = 'SELECT FROM audit WHERE pet_id < 9 GROUP BY pet_id, quantity HAVING count(*) > 1'
const SESSIONS = `FROM pg_stat_activity WHERE usename = '${SERVICE}'`

const faults: [Fault, ...Fault[]] = [
  { name: 'PostgreSQL crashes', make: () => database.crash() },
  ...(['stop', 'kill'] as const).map((name) => ({
    name: `PostgreSQL: ${name}`,
    make: async (number: number) => {
      await database[name]()
      await setTimeout(number)
      await database.start()
    },
  })),
  {
    name: 'a session is killed',
    make: async () => {
      const [row] = await database.query(`SELECT pid ${SESSIONS} LIMIT 1`)
      if (row !== undefined) process.kill(Number(row['pid']), 'SIGKILL')
      await eventually('PostgreSQL', () => database.query('SELECT').catch(() => false as const))
    },
  },
  run('sessions are terminated', `SELECT pg_terminate_backend(pid) ${SESSIONS} AND pid % 3 = NUMBER % 3`),
  run('statements are canceled', `SELECT pg_cancel_backend(pid) ${SESSIONS} AND pid % 3 = NUMBER % 3`),
  lock('locked rows', 'SELECT FROM inventory WHERE pet_id <= 1 + NUMBER % 12 FOR UPDATE'),
  lock('locked table', 'LOCK inventory', 'LOCK inventory IN SHARE MODE'),
  act(
    'raises',
    `IF ${HIT} THEN RAISE '%', 1 USING ERRCODE = (ARRAY['P0001', '40001', '08006'])[1 + NUMBER % 3]; END IF`,
    [400],
  ),
  act('raises at COMMIT', `IF ${HIT} THEN RAISE 'no'; END IF`, [400], AT_COMMIT),
  act('fails', `IF ${PET} THEN PERFORM missing(); END IF`, [500]),
  act('skips', `IF ${HIT} THEN RETURN NULL; END IF`, [400]),
  act('is slow', `IF ${PET} THEN PERFORM pg_sleep(NUMBER * 0.003); END IF`),
  act('has NOWAIT', 'PERFORM FROM limits FOR UPDATE NOWAIT'),
  act(
    'sets a parameter of the session',
    `IF ${HIT} THEN PERFORM set_config(name, value, false) FROM (VALUES ('search_path', 'elsewhere'), ('statement_timeout', '1'),
       ('default_transaction_read_only', 'on'), ('default_transaction_isolation', 'serializable'), ('array_nulls', 'off'))
       AS parameter (name, value) OFFSET NUMBER % 5 LIMIT 1; END IF`,
  ),
  act(
    'reads a table',
    `DECLARE it record; BEGIN SELECT * INTO it FROM limits; IF new.quantity > it.most THEN RAISE 'no'; END IF; END`,
    [500],
  ),
  run('ALTER TYPE', ...['bigint', 'integer'].map((type) => `ALTER TABLE limits ALTER most TYPE ${type}`)),
  run(
    'DDL',
    'ALTER TABLE inventory ADD COLUMN IF NOT EXISTS places integer DEFAULT 7',
    'ALTER TABLE inventory DROP COLUMN IF EXISTS places',
    'CREATE INDEX IF NOT EXISTS by_quantity ON inventory (quantity); REINDEX TABLE inventory',
  ),
  run(
    'TRUNCATE and INSERT',
    `BEGIN; LOCK inventory; CREATE TEMPORARY TABLE kept ON COMMIT DROP AS TABLE inventory; TRUNCATE inventory;
     INSERT INTO inventory (pet_id, quantity, status) SELECT pet_id, quantity, status FROM kept; COMMIT`,
  ),
  {
    name: 'import',
    make: async (number, _, t) => {
      const input = `petId,quantity\n${1000 + number},${number}\n${2000 + number},${number}\n`
      await inventory(t, database.superuserUrl, 'import - --rows 2', { input })
    },
  },
  { name: 'connections are cut', make: async (_, { relay }) => relay.cut() },
  ...(['request', 'response'] as const).map((name) => ({
    name: `each ${name} may be cut`,
    make: async (number: number, { every }: Service) => {
      every[name] = 3 + (number % 30)
      return async () => Object.assign(every, { [name]: 0 })
    },
  })),
  ...(['fail', 'stall'] as const).map((name) => ({
    name: `connections ${name}`,
    make: async (number: number, { relay }: Service) => {
      relay[name]()
      await setTimeout(9 * number)
      return () => relay.restore()
    },
  })),
  {
    name: 'the network is cut',
    make: async (_, { relay }, t) => {
      if (!canCut) return
      const restore = await cutNetwork(t, Number(new URL(relay.url).port))
      await setTimeout(CUT_MS)
      await restore()
      return () => setTimeout(SENT_AGAIN_MS - CUT_MS)
    },
  },
  ...(['SIGTERM', 'SIGKILL'] as const).map((name) => ({
    name: `${name} for a process`,
    failures: [0],
    make: (_: number, service: Service) => service.restart(name),
  })),
]

async function runEpisode(t: Test): Promise<void> {
  const plan = Array.from({ length: 1 + random(4) }, () => {
    return { fault: pick(faults), number: random(1000), service: pick(services), pause: random(1500) }
  })
  console.error(plan.map(({ fault: { name }, number }) => `${name} (${number})`).join(', '))
  await database.query(
    `TRUNCATE inventory; INSERT INTO inventory SELECT n, 0, 'available' FROM generate_series(1, ${all.length}) n;
     TRUNCATE inventory_history, audit`,
  )
  const ports = services.map(({ port }) => port)
  const load = startLoad(t, { ports, clients: 16, pets })
  const writers = startWriters(t, ports, writtenPets)
  await load.served(200)
  const ends: Awaited<ReturnType<Fault['make']>>[] = []
  for (const { fault, number, service, pause } of plan) {
    ends.push(await fault.make(number, service, t))
    await setTimeout(pause)
  }
  await Promise.all(ends.map((end) => end?.()))
  await Promise.all([load.next('update', 'success'), load.next('list', 'success'), load.served(200)])
  await Promise.all([writers.stop(), load.stop()])
  const isIdle = async () => (await database.query(`SELECT ${SESSIONS} AND state <> 'idle'`)).length === 0
  await eventually('all sessions to be idle', isIdle)
  const allowed = new Set(plan.flatMap(({ fault }) => fault.failures ?? []))
  await expectOneHistory(t, load, pets, database, ({ answer }) => allowed.has(answer?.status ?? 0))
  const changes = await readChanges(t, database.superuserUrl)
  t.strictSame(errorsIn(changes, all, await readStock(database), load.updates), [], 'no update is lost')
  t.strictSame(lateIn(changes, writtenPets), [], 'no update is late')
  t.strictSame(await database.query(DOUBLED), [], 'no update is doubled')
  const unnamed = changes.filter(({ key, requestId }) => (key === null) !== (requestId === null))
  t.strictSame(unnamed, [], 'every update has its caller')
  const made = new Set(changes.map(({ requestId }) => requestId))
  const refused = load.failures.filter(
    ({ id, answer }) =>
      made.has(id) && answer && (answer.status < 500 || answer.text.includes('nothing_changed')),
  )
  t.strictSame(refused, [], 'no refused update is made')
  const [row] = await database.query(LIST)
  for (const { server } of services)
    t.ok((await server.send('GET', '/v1/inventory')).text === row?.['list'], 'the list is what SQL says')
}

console.error(`SEED=${SEED}`)
const deadline = performance.now() + Number(SECONDS) * 1000
for (let number = 1; performance.now() < deadline; number++)
  await t.test(`episode ${number} of seed ${SEED}`, runEpisode)
