import t, { type Test } from 'tap'
import { inventory, runCommand } from '../support/command.ts'
import { addEntries, addKey, type TestDatabase, testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { chainErrors, changesIn, type RecordedChange, startWriters } from '../support/history.ts'
import { callerOf, json } from '../support/http.ts'
import { type Program, portOf, startProgram } from '../support/program.ts'
import { testRole } from '../support/roles.ts'

async function history(t: Test, url: string, ...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await inventory(t, url, 'history', ...args)
  t.equal(code, 0, stderr)
  return stdout
}

/** Imports lines of CSV. */
async function importLines(t: Test, { url }: TestDatabase, mode: string, lines: string): Promise<void> {
  const { code, stderr } = await runCommand(
    t,
    ['import', '-', '--rows', String(lines.split('\n').length - 1), '--allow-removals', '--mode', mode],
    { env: { DATABASE_URL: url }, input: `petId,quantity,status\n${lines}` },
  )
  t.equal(code, 0, stderr)
}

t.test('every acknowledged update of two processes is recorded once, and pets have no gap', async (t) => {
  const serverRole = await testRole(t)
  const database = await testDatabase(t)
  t.equal((await inventory(t, database.url, 'migrate', 'up', '--server-role', serverRole.name)).code, 0)
  const pets = [1, 2, 3, 4, 5]
  await addEntries(
    database,
    pets.map((pet) => [String(pet), 0, 'available']),
  )
  const apiKey = await addKey(database, 'billing')
  await history(t, database.url, 'on')
  const env = { DATABASE_URL: serverRole.urlOf(database.url), PORT: '0' }
  const servers = await Promise.all([1, 2].map(() => startProgram(t, 'server', { env })))
  const ports = await Promise.all(servers.map(portOf))
  const writers = startWriters(t, { ports, apiKey, callers: 64, pets })
  const sql = (async () => {
    // Locked in the order in which the servers update them: in any other, PostgreSQL could end one of both as a deadlock.
    const all = 'SELECT pet_id FROM inventory ORDER BY pet_id FOR UPDATE'
    for (let quantity = 1; quantity <= 20; quantity++)
      await database.query(
        `UPDATE inventory SET quantity = ${2e9 + quantity}, status = 'sold' WHERE pet_id IN (${all})`,
      )
  })()
  await importLines(t, database, 'upsert', '6,1,\n7,1,\n')
  await importLines(t, database, 'upsert', '1,1900000001,pending\n6,1,\n8,1,\n')
  await importLines(t, database, 'replace', '1,1900000002,\n2,1900000003,\n3,0,\n4,0,\n5,0,\n8,9,\n')
  await sql
  await writers.reached(1000)
  await writers.stop()
  await servers[0]?.output(/listening/)

  const text = await history(t, database.url, '--json')
  const changes = changesIn(text).reverse()
  const recorded = new Map<string | null, RecordedChange[]>()
  for (const change of changes)
    recorded.set(change.requestId, [
      ...(change.requestId === null ? [] : (recorded.get(change.requestId) ?? [])),
      change,
    ])
  for (const { requestId, petId, quantity } of writers.acknowledged) {
    const [change, ...more] = recorded.get(requestId) ?? []
    t.strictSame(
      { petId: change?.petId, quantity: change?.newQuantity, key: change?.key, role: change?.role, more },
      { petId, quantity, key: 'billing', role: serverRole.name, more: [] },
    )
  }
  t.equal(changes.filter(({ requestId }) => requestId !== null).length, writers.acknowledged.length)
  t.ok(changes.every(({ key, keyId }) => key === null || /^[0-9a-f]{12}$/.test(keyId ?? '')))
  const first = new Map(pets.map((pet) => [pet, { quantity: 0, status: 'available' }]))
  t.strictSame(chainErrors(changes, first, await entriesOf(database)), [])
  t.comment(`${writers.acknowledged.length} acknowledged updates, ${changes.length} changes`)
})

async function entriesOf(database: TestDatabase): Promise<Map<number, { quantity: number; status: string }>> {
  const rows = await database.query('SELECT * FROM inventory')
  return new Map(
    rows.map((row) => [
      Number(row['pet_id']),
      { quantity: Number(row['quantity']), status: row['status'] ?? '' },
    ]),
  )
}

t.test('changes are listed by pet, time and caller, as table, CSV and JSON', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['9223372036854775807', 5, 'available']])
  await history(t, database.url, 'on')
  await database.query('UPDATE inventory SET quantity = 0')
  await database.query('UPDATE inventory SET quantity = quantity')
  await addEntries(database, [['2', 7, 'sold']])
  await database.query('DELETE FROM inventory WHERE pet_id = 2')
  await database.query('UPDATE inventory SET pet_id = 3')
  await database.query('TRUNCATE inventory')
  const [{ role = '' } = {}] = await database.query('SELECT session_user AS role')
  const csv = await history(t, database.url, '--csv')
  t.strictSame(
    csv
      .replaceAll(/^[^,]{24}Z?,/gm, '')
      .split('\n')
      .sort(),
    [
      '',
      `,,,,,,,${role},`,
      `2,,7,,sold,,,${role},`,
      `2,7,,sold,,,,${role},`,
      `3,,0,,available,,,${role},`,
      `9223372036854775807,0,,available,,,,${role},`,
      `9223372036854775807,5,0,available,available,,,${role},`,
      'time,petId,oldQuantity,newQuantity,oldStatus,newStatus,key,keyId,role,requestId',
    ],
  )
  t.match(
    await history(t, database.url, '2'),
    /^TIME .*\n\S+Z +all +- +- .*\n\S+Z +2 +7 sold +- .*\n\S+Z +2 +- +7 sold +role .* -\n$/,
  )
  t.match(await history(t, database.url, '9223372036854775807', '--json'), '"petId":9223372036854775807,')
  t.equal(await history(t, database.url, '--json', '--by', 'nobody'), '')
  t.equal(
    changesIn(await history(t, database.url, '--json', '--by', String(role), '--since', '1h')).length,
    6,
  )
  await database.query(
    "UPDATE inventory_history SET changed_at = now() - interval '2 h' WHERE pet_id IS NOT NULL",
  )
  t.equal(changesIn(await history(t, database.url, '--json', '--since', '1h')).length, 1)
  t.equal((await inventory(t, database.url, 'history', '2x')).code, 2)
  t.equal((await inventory(t, database.url, 'history', '--csv', '--json')).code, 2)
})

t.test('--follow prints each change once, even if its transaction commits late', async (t) => {
  const database = await testDatabase(t)
  await addEntries(
    database,
    [1, 2, 3].map((pet) => [String(pet), 0, 'available']),
  )
  await history(t, database.url, 'on')
  const commitLate = await database.hold('UPDATE inventory SET quantity = 1 WHERE pet_id = 1', 'COMMIT')
  const follower = await startProgram(t, 'cli', {
    args: ['history', '--follow', '--json'],
    env: { DATABASE_URL: database.url },
  })
  await eventually(
    'the follower to connect',
    async () =>
      (
        await database.query(
          "SELECT FROM pg_stat_activity WHERE query = 'COMMIT AND CHAIN' AND datname = current_database()",
        )
      )[0],
  )
  for (const quantity of [1, 2]) {
    await database.query(`UPDATE inventory SET quantity = ${quantity} WHERE pet_id = 2`)
    await follower.output(new RegExp(`"petId":2,.*"newQuantity":${quantity},`))
  }
  await commitLate()
  await follower.output(/"petId":1,/)
  await database.query('UPDATE inventory SET quantity = 9 WHERE pet_id = 3')
  await follower.output(/"petId":3,/)
  follower.process.kill('SIGINT')
  const { code, stdout } = await follower.ended
  t.equal(code, 130)
  t.strictSame(
    changesIn(stdout).map(({ petId, newQuantity }) => [petId, newQuantity]),
    [
      [2, 1],
      [2, 2],
      [1, 1],
      [3, 9],
    ],
  )
})

t.test('prune deletes what is older, oldest first, and the rest stays', async (t) => {
  const database = await testDatabase(t)
  await history(t, database.url, 'on')
  await database.query("INSERT INTO inventory SELECT id, 0, 'sold' FROM generate_series(1, 25000) id")
  await database.query(
    "UPDATE inventory_history SET changed_at = now() - interval '91 d' WHERE pet_id <= 24990",
  )
  t.equal(await history(t, database.url, 'prune', '--keep', '90d'), '24,990 changes deleted\n')
  t.equal(await history(t, database.url, 'prune', '--keep', '90d'), '0 changes deleted\n')
  t.equal(changesIn(await history(t, database.url, '--json')).length, 10)
  const status = JSON.parse(await history(t, database.url, 'status', '--json'))
  t.match(status, { recording: true, changes: Number, bytes: Number, oldest: /Z$/ })
  t.equal((await inventory(t, database.url, 'history', 'prune')).code, 2)
})

t.test('off leaves no trigger behind, and writers are not recorded', async (t) => {
  const database = await testDatabase(t)
  await history(t, database.url, 'on')
  const open = await database.hold("INSERT INTO inventory VALUES (1, 1, 'sold')", 'COMMIT')
  const refused = await inventory(t, database.url, 'history', 'off')
  t.match(refused, { code: 1, stderr: /nothing was changed/ })
  await open()
  t.equal(await history(t, database.url, 'off'), 'The history is off.\n')
  await database.query('UPDATE inventory SET quantity = 2')
  t.equal(changesIn(await history(t, database.url, '--json')).length, 1)
  const triggers = "SELECT FROM pg_trigger WHERE tgrelid = 'inventory'::regclass"
  t.strictSame(await database.query(triggers), [])
  t.match(await history(t, database.url, 'status'), /^Recording {2}off\nChanges {4}about \d+, the oldest of /)
})

t.test('operators read the history, and only the owner of the tables can change it', async (t) => {
  const [server, operator] = [await testRole(t), await testRole(t)]
  const database = await testDatabase(t)
  const roles = ['--server-role', server.name, '--operator-role', operator.name]
  t.equal((await inventory(t, database.url, 'migrate', 'up', ...roles)).code, 0)
  await history(t, database.url, 'on')
  await addEntries(database, [['1', 1, 'sold']])
  t.equal(changesIn(await history(t, operator.urlOf(database.url), '--json')).length, 1)
  await history(t, operator.urlOf(database.url), 'status')
  for (const args of [['on'], ['off'], ['prune', '--keep', '1d']])
    t.match(await inventory(t, operator.urlOf(database.url), 'history', ...args), { code: 1, stderr: /own/ })
  const select = await inventory(t, server.urlOf(database.url), 'history')
  t.match(select, { code: 1, stderr: /lacks a privilege/ })
  // A writer cannot put a table of its own in the place of the history.
  await database.query(
    `GRANT TEMPORARY ON DATABASE ${new URL(database.url).pathname.slice(1)} TO ${operator.name}`,
  )
  const { default: pg } = await import('pg')
  const client = new pg.Client({ connectionString: operator.urlOf(database.url) })
  await client.connect()
  await client.query('CREATE TEMPORARY TABLE inventory_history (LIKE public.inventory_history INCLUDING ALL)')
  await client.query('UPDATE inventory SET quantity = 2')
  await client.end()
  t.match(changesIn(await history(t, database.url, '--json'))[0], { newQuantity: 2, role: operator.name })
})

t.test(
  'lists are cached and updates name their callers after on and off while the server runs',
  async (t) => {
    const database = await testDatabase(t)
    await addEntries(database, [['1', 0, 'sold']])
    const apiKey = await addKey(database, 'ops')
    const server: Program = await startProgram(t, 'server', {
      env: { DATABASE_URL: database.url, PORT: '0' },
    })
    const send = callerOf(await portOf(server), {
      authorization: `Bearer ${apiKey}`,
      'x-request-id': 'request-1',
    })
    const list = async (): Promise<string> => (await send('GET', '/v1/inventory')).text
    const update = (quantity: number, headers = {}): Promise<unknown> =>
      send('PATCH', '/v1/inventory/1', {
        ...json({ quantity }),
        headers: { ...json({}).headers, ...headers },
      })
    await update(1)
    await list()
    await history(t, database.url, 'on')
    await update(2)
    await update(3, { 'if-match': '"2-sold"' })
    t.equal(await list(), '[{"petId":1,"quantity":3,"status":"sold"}]')
    await history(t, database.url, 'off')
    await update(4)
    t.equal(await list(), '[{"petId":1,"quantity":4,"status":"sold"}]')
    const changes = changesIn(await history(t, database.url, '--json', '--by', 'ops'))
    t.match(changes, [
      { oldQuantity: 2, newQuantity: 3, key: 'ops', requestId: 'request-1' },
      { oldQuantity: 1, newQuantity: 2, key: 'ops', requestId: 'request-1' },
    ])
    server.process.kill('SIGTERM')
    const { stdout } = await server.ended
    t.equal(stdout.match(/lists are reused until there is a commit/g)?.length, 1)
    t.notMatch(stdout, /every list is read in full/)
  },
)
