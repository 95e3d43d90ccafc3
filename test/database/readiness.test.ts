import { pino } from 'pino'
import t from 'tap'
import { loadConfig } from '../../src/config/load-config.ts'
import { createReadiness } from '../../src/database/readiness.ts'
import { createPools } from '../../src/service/pools.ts'
import { longLimits, startApp, startService } from '../support/app.ts'
import { inventory, succeed } from '../support/command.ts'
import { addKey, testDatabase, testRole } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { startLackingServer, startRelay } from '../support/relay.ts'

/** What `/readyz` says of the tables after a change of them. */
const changes = [
  ['inventory is a view', 'DROP TABLE inventory; CREATE VIEW inventory AS TABLE made.inventory'],
  [
    'inventory is a partitioned table',
    'DROP TABLE inventory; CREATE TABLE inventory (LIKE made.inventory INCLUDING ALL) PARTITION BY HASH (pet_id)',
  ],
  ['inventory has tables that inherit', 'CREATE TABLE more () INHERITS (inventory)'],
  ['inventory has the rule also;', 'CREATE RULE also AS ON UPDATE TO inventory DO ALSO NOTHING'],
  [
    'inventory has "quantity bigint NOT NULL" in place of its column "quantity integer NOT NULL"',
    'ALTER TABLE inventory ALTER quantity TYPE bigint',
  ],
  ['inventory has "status text" in place of', 'ALTER TABLE inventory ALTER status DROP NOT NULL'],
  ['inventory has nothing in place of', 'ALTER TABLE inventory RENAME quantity TO amount'],
  ['inventory lacks the primary key (pet_id)', 'ALTER TABLE inventory DROP CONSTRAINT inventory_pkey'],
  [
    'ready',
    `ALTER TABLE inventory ADD note text NOT NULL DEFAULT '', ADD CHECK (quantity < 1000);
     CREATE INDEX ON inventory (status); CREATE TABLE archive () INHERITS (inventory_history);
     ALTER TABLE api_keys ALTER expires_at SET NOT NULL`,
  ],
  [
    'inventory lacks the primary key (pet_id)',
    'ALTER TABLE inventory DROP CONSTRAINT inventory_pkey, ADD PRIMARY KEY (pet_id) DEFERRABLE',
  ],
  ['api_keys is a view', 'DROP TABLE api_keys; CREATE VIEW api_keys AS TABLE made.api_keys'],
  [
    'inventory_history has "pet_id numeric" in place of',
    'ALTER TABLE inventory_history ALTER pet_id TYPE numeric',
  ],
  ['inventory_history does not exist', 'DROP TABLE inventory_history'],
  [
    'ready',
    `DROP TABLE inventory_history;
     CREATE TABLE inventory_history (LIKE made.inventory_history) PARTITION BY RANGE (changed_at)`,
  ],
] as const

t.test('a table that is not as its migrations made it is a reason not to be ready', async (t) => {
  const { database, send } = await startService(t)
  await database.query('ALTER SCHEMA public RENAME TO made')
  const tables = ['pgmigrations', 'inventory', 'inventory_history', 'api_keys']
  const copies = tables.map((table) => `CREATE TABLE ${table} (LIKE made.${table} INCLUDING ALL)`).join(';')
  for (const [found, change] of changes) {
    await database.query(`DROP SCHEMA IF EXISTS public CASCADE; CREATE SCHEMA public; ${copies};
      INSERT INTO pgmigrations TABLE made.pgmigrations; ${change}`)
    const text = found === 'ready' ? '{"status":"ready"}' : `The table ${found}`
    const readiness = async () => (await send('GET', '/readyz')).text.replaceAll('\\', '')
    await eventually(text, async () => (await readiness()).includes(text))
    t.pass(`${found}: ${change}`)
  }
})

t.test('readiness is one round trip, and another one on a new connection', async (t) => {
  const { url } = await testDatabase(t)
  /** What the service sends before it waits for the response. */
  const messages: string[] = []
  let isWaiting = false
  const relay = await startRelay(t, url, {
    towardsDatabase(bytes) {
      messages.push(`${isWaiting ? messages.pop() : ''}${bytes}`)
      isWaiting = true
      return bytes
    },
    towardsClient(bytes) {
      isWaiting = false
      return bytes
    },
  })
  const config = loadConfig({ DATABASE_URL: relay.url, API_KEYS: 'ops:key' })
  const options = { ...config, databaseUrl: relay.url, tracing: undefined }
  const { probe, requests, needs, close } = createPools(options, longLimits, pino({ level: 'silent' }))
  t.teardown(close)
  t.equal(await createReadiness(probe, requests, needs)(), undefined)
  const statements = messages.splice(0).filter((text) => text.includes('SELECT'))
  t.equal(statements.length, 2, 'which server it is, and the check')
  t.equal(await createReadiness(probe, requests, needs)(), undefined)
  t.equal(messages.length, 1)
})

t.test('rows that row security may hide are a reason not to be ready, never an empty list', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t, { entries: ['1,9,available'] })
  const key = await addKey(database, 'stored')
  const url = role.toUrl(database.url)
  await succeed(t, database.url, `migrate up --server-role ${role.name}`)
  await database.query(`GRANT ALL ON inventory, api_keys TO ${role.name}`)
  const { send } = await startApp(t, url)
  t.equal((await send('GET', '/readyz')).text, '{"status":"ready"}')
  for (const table of ['inventory', 'api_keys']) {
    await database.query(`ALTER TABLE ${table} ENABLE ROW LEVEL SECURITY`)
    const { send: started, update } = await startApp(t, url)
    const reason = `Row security would hide rows: query would be affected by row-level security policy for table "${table}"`
    t.match(JSON.parse((await started('GET', '/readyz')).text), { message: reason }, table)
    const requests = [
      await started('GET', '/v1/inventory', { headers: { authorization: `Bearer ${key}` } }),
      await started('GET', '/v1/inventory'),
      await update(1, 3),
    ]
    if (table === 'api_keys') t.equal(requests[0]?.status, 503, 'a stored key is not called invalid')
    else for (const answer of requests) t.equal(answer.status, 503, answer.text)

    const stderr = /: Row security would hide rows from this role: .* Use a role that sees all/
    const input = 'petId,quantity\n1,2\n'
    const commands =
      table === 'inventory' ? ['export', 'import - --rows 1'] : ['keys list', 'keys revoke stored']
    for (const command of ['status', ...commands])
      t.match(await inventory(t, url, command, { input }), { code: 1, stdout: '', stderr }, command)
    await database.query(`ALTER TABLE ${table} DISABLE ROW LEVEL SECURITY`)
  }
})

t.test('a server that lacks a feature is a reason not to be ready, and no request gets a 500', async (t) => {
  const database = await testDatabase(t, { entries: ['1,1,sold'] })
  const server = await startLackingServer(t, database.url, 'RETURNING')

  // A process that cannot reach the server yet says it on /readyz.
  server.fail()
  const { send, update } = await startApp(t, server.url)
  await server.restore()
  const readiness = await eventually('the service to reach the server', async () => {
    const answer = await send('GET', '/readyz')
    return answer.text.includes('cannot be reached') ? undefined : answer
  })
  t.equal(readiness.status, 503)
  t.match(readiness.text, 'The database does not support a statement that this service needs: ')
  t.match(readiness.text, /syntax error at or near/)
  const updates = Array.from({ length: 11 }, () => update(1, 3))
  for (const { status, text } of await Promise.all([send('GET', '/v1/inventory'), ...updates]))
    t.ok([200, 503].includes(status), `${status}: ${text}`)
})
