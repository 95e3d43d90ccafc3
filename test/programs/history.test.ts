import t, { type Test } from 'tap'
import { inventory, runCommand } from '../support/command.ts'
import { addEntries, addKey, type TestDatabase, testDatabase, waitForLocks } from '../support/database.ts'
import { until } from '../support/eventually.ts'
import { chainErrors, changesIn, type RecordedChange } from '../support/history.ts'
import { callerOf, json } from '../support/http.ts'
import { startLoad } from '../support/load.ts'
import { onServer } from '../support/on-server.ts'
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
  const key = await addKey(database, 'billing')
  await history(t, database.url, 'on')
  const env = { DATABASE_URL: serverRole.urlOf(database.url), PORT: '0' }
  const servers = await Promise.all([1, 2].map(() => startProgram(t, 'server', { env })))
  const ports = await Promise.all(servers.map(portOf))
  const load = startLoad(t, { ports, key, clients: 64, pets })
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
  await load.served(2000)
  await load.stop()
  await servers[0]?.output(/listening/)

  const text = await history(t, database.url, '--json')
  const changes = changesIn(text).reverse()
  const recorded = new Map<string | null, RecordedChange[]>()
  for (const change of changes)
    recorded.set(change.requestId, [
      ...(change.requestId === null ? [] : (recorded.get(change.requestId) ?? [])),
      change,
    ])
  for (const { id, pet, quantity } of load.updates) {
    const [change, ...more] = recorded.get(id) ?? []
    t.strictSame(
      { petId: change?.petId, quantity: change?.newQuantity, key: change?.key, role: change?.role, more },
      { petId: pet, quantity, key: 'billing', role: serverRole.name, more: [] },
    )
  }
  t.equal(changes.filter(({ requestId }) => requestId !== null).length, load.updates.length)
  t.ok(changes.every(({ key, keyId }) => key === null || /^[0-9a-f]{12}$/.test(keyId ?? '')))
  const first = new Map(pets.map((pet) => [pet, { quantity: 0, status: 'available' }]))
  t.strictSame(chainErrors(changes, first, await entriesOf(database)), [])
  t.comment(`${load.updates.length} acknowledged updates, ${changes.length} changes`)
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
    /^TIME .*\n\S+Z +all +- +- .*\n\S+Z +2 +7 sold +- .*\n\S+Z +2 +- +7 sold +- +\S+ +-\n$/,
  )
  t.match(await history(t, database.url, '9223372036854775807', '--json'), '"petId":9223372036854775807,')
  t.equal(await history(t, database.url, '--json', '--by', 'nobody'), '')
  const byRole = await history(t, database.url, '--json', '--by', String(role), '--since', '1h')
  t.equal(changesIn(byRole).length, 6)
  t.match(JSON.parse(await history(t, database.url, 'status', '--json')), { recording: true, changes: 6 })
  await database.query(
    "UPDATE inventory_history SET changed_at = now() - interval '2 h' WHERE pet_id IS NOT NULL",
  )
  t.equal(changesIn(await history(t, database.url, '--json', '--since', '1h')).length, 1)
  t.equal((await inventory(t, database.url, 'history', '2x')).code, 2)
})

t.test('a history that version 2.0.0 has turned on goes on, also in a schema with a new name', async (t) => {
  const database = await testDatabase(t)
  const url = `${database.url}?options=-c%20search_path%3Dshop,public`
  await addEntries(database, [['1', 5, 'sold']])
  t.equal((await inventory(t, url, 'migrate', 'down', '--yes')).code, 0)
  await history(t, database.url, 'on')
  t.equal((await inventory(t, url, 'migrate', 'up')).code, 0)
  await database.query('ALTER SCHEMA public RENAME TO shop')
  await database.query('UPDATE shop.inventory SET quantity = 0')
  await database.query(`DO $$ BEGIN
    UPDATE shop.inventory SET quantity = 9 WHERE pet_id = 2;
    ASSERT pg_current_xact_id_if_assigned() IS NULL, 'no row, but a transaction id';
  END $$`)
  t.match(changesIn(await history(t, url, '--json')), [{ petId: 1, oldQuantity: 5, newQuantity: 0 }])
})

t.test('a role that names callers itself forges no line, and is shown', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 5, 'sold']])
  await history(t, database.url, 'on')
  const callers = JSON.stringify({ 1: ['a\nb', '2026-01-01 role x', '\u001b[2J\u202e'] })
  await database.query(`SELECT set_config('inventory.callers', $1, false)`, [callers])
  const release = await database.hold(
    `SELECT set_config('inventory.callers', '${callers}', true); UPDATE inventory SET quantity = 1`,
    'COMMIT',
  )
  await release()
  t.match(changesIn(await history(t, database.url, '--json')), [{ key: null, keyId: null, requestId: null }])
  // As the former function has recorded it.
  await database.query("UPDATE inventory_history SET key_name = E'a\nb', request_id = E'\\u001b[2J\\u202e'")
  const [, line, ...more] = (await history(t, database.url)).split('\n')
  t.match(line, / a\\u000ab .* \\u001b\[2J\\u202e$/)
  t.strictSame(more, [''])
})

t.test('prune deletes all that is older, and says how much, also if it is interrupted', async (t) => {
  const database = await testDatabase(t)
  await history(t, database.url, 'on')
  await database.query("INSERT INTO inventory SELECT id, 0, 'sold' FROM generate_series(1, 15000) id")
  for (const ids of ['<= 7500', '> 7500'])
    await database.query(`UPDATE inventory SET quantity = 1 WHERE pet_id ${ids}`)
  const age = (condition: string): Promise<unknown> =>
    database.query(`UPDATE inventory_history SET changed_at = now() - interval '91 d' WHERE ${condition}`)
  // Everything but one long transaction in the middle.
  await age('old_quantity IS NULL OR pet_id > 7500')
  const release = await database.hold('LOCK TABLE inventory_history IN SHARE MODE')
  const program = await startProgram(t, 'cli', {
    args: ['history', 'prune', '--keep', '90d'],
    env: { DATABASE_URL: database.url },
  })
  await waitForLocks(database)
  program.process.kill('SIGTERM')
  await release()
  const { code, stderr } = await program.ended
  t.equal(code, 143)
  t.match(stderr, /interrupted; 10,000 changes deleted/)
  t.equal(await history(t, database.url, 'prune', '--keep', '90d'), '12,500 changes deleted\n')
  t.equal(await history(t, database.url, 'prune', '--keep', '90d'), '0 changes deleted\n')
  t.match(await history(t, database.url, 'status'), /^Changes {4}7,500, the oldest of /m)
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
  t.match(await history(t, database.url, 'status'), /^Recording {2}off\nChanges {4}1, the oldest of /)
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
  const name = new URL(database.url).pathname.slice(1)
  await database.query(`GRANT TEMPORARY ON DATABASE ${name} TO ${operator.name}`)
  await onServer(
    operator.urlOf(database.url),
    `CREATE TEMPORARY TABLE inventory_history (LIKE public.inventory_history INCLUDING ALL);
     UPDATE inventory SET quantity = 2`,
  )
  t.match(changesIn(await history(t, database.url, '--json'))[0], { newQuantity: 2, role: operator.name })
})

t.test(
  'once on has ended, every update of a running server names its key, and lists stay cached',
  async (t) => {
    const database = await testDatabase(t)
    await addEntries(database, [['1', 0, 'sold']])
    // Slow once the history is on, as turning it on waits for writers.
    await database.query(`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF EXISTS (SELECT FROM pg_trigger WHERE tgname = 'inventory_history_update') THEN PERFORM pg_sleep(4); END IF;
      RETURN NEW;
    END $$;
    CREATE TRIGGER slow BEFORE UPDATE ON inventory FOR EACH ROW EXECUTE FUNCTION slow()`)
    const apiKey = await addKey(database, 'ops')
    const server: Program = await startProgram(t, 'server', {
      env: { DATABASE_URL: database.url, PORT: '0' },
    })
    const send = callerOf(await portOf(server), { authorization: `Bearer ${apiKey}` })
    let quantity = 0
    let isOver = false
    const writer = (async () => {
      while (!isOver)
        t.equal((await send('PATCH', '/v1/inventory/1', json({ quantity: ++quantity }))).status, 200)
    })()
    await until('the first update', () => quantity > 1)
    await history(t, database.url, 'on')
    const unnamed = async (): Promise<number> =>
      changesIn(await history(t, database.url, '--json')).filter(({ key }) => key === null).length
    const before = await unnamed()
    const reached = quantity + 2
    await until('two more updates', () => quantity > reached)
    isOver = true
    await writer
    t.equal(await unnamed(), before)
    const stock = `[{"petId":1,"quantity":${quantity},"status":"sold"}]`
    t.equal((await send('GET', '/v1/inventory')).text, stock)
    server.process.kill('SIGTERM')
    t.notMatch((await server.ended).stdout, /every list is read in full/)
  },
)
