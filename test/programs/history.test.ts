import pg from 'pg'
import t, { type Test } from 'tap'
import { inTransaction } from '../../src/database/admin/transaction.ts'
import { valueColumns } from '../../src/inventory/entry/columns.ts'
import { startRecording } from '../../src/inventory/history/recording.ts'
import { startApp } from '../support/app.ts'
import { inventory, startCommand, succeed } from '../support/command.ts'
import { addKey, addMany, readStock, testDatabase, testRole, waitForLocks } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { errorsIn, readChanges } from '../support/history.ts'
import { createSender } from '../support/http.ts'
import { findContradiction } from '../support/linearizability.ts'
import { startLoad } from '../support/load.ts'
import { onServer } from '../support/on-server.ts'
import { trigger } from '../support/triggers.ts'

/** Turns the history on, as the command does, which then waits for servers. */
const turnOn = (url: string): Promise<void> => inTransaction({ url }, startRecording)

/** Makes a database whose history is on, with these entries. */
async function openRecorded(t: Test, ...entries: string[]) {
  const database = await testDatabase(t, { entries })
  await turnOn(database.url)
  return database
}

const history = (t: Test, url: string, command: string) => succeed(t, url, `history ${command}`)

/** Imports lines of CSV with a petId, a quantity and a status. */
async function importLines(t: Test, url: string, mode: string, ...lines: string[]): Promise<void> {
  const command = `import - --rows ${lines.length} --allow-removals --mode ${mode}`
  const input = `petId,quantity,status\n${lines.join('\n')}\n`
  t.match(await inventory(t, url, command, { input }), { code: 0 })
}

t.test('every acknowledged update of two services is recorded once, and pets have no gap', async (t) => {
  const serverRole = await testRole(t)
  const database = await testDatabase(t)
  await succeed(t, database.url, `migrate up --server-role ${serverRole.name}`)
  const pets = [1, 2, 3, 4, 5]
  await addMany(database, pets.length, 'available')
  const key = await addKey(database, 'billing')
  await turnOn(database.url)
  const services = await Promise.all([1, 2].map(() => startApp(t, serverRole.toUrl(database.url))))
  const load = startLoad(t, { ports: services.map(({ port }) => port), key, clients: 64, pets })
  const sql = (async () => {
    // Locked in the order in which the servers usually update them. In another one, PostgreSQL ends a deadlock with one of both.
    const all = 'SELECT pet_id FROM inventory ORDER BY pet_id FOR UPDATE'
    for (let quantity = 1; quantity <= 20; quantity++)
      await database
        .query(`UPDATE inventory SET quantity = ${2e9 + quantity}, status = 'sold' WHERE pet_id IN (${all})`)
        .catch((error: unknown) => {
          if (!(error instanceof pg.DatabaseError) || error.code !== '40P01') throw error
        })
  })()
  await importLines(t, database.url, 'upsert', '6,1,', '7,1,')
  await importLines(t, database.url, 'upsert', '1,1900000001,pending', '6,1,', '8,1,')
  const lines = '1,1900000002, 2,1900000003, 3,0, 4,0, 5,0, 8,9,'.split(' ')
  await importLines(t, database.url, 'replace', ...lines)
  await sql
  await load.served(1000)
  await load.stop()

  const changes = await readChanges(t, database.url)
  t.strictSame(errorsIn(changes, pets, await readStock(database), load.updates), [])
  const named = changes.filter(({ requestId }) => requestId !== null)
  t.equal(named.length, load.updates.length)
  t.ok(named.every(({ key, role }) => key === 'billing' && role === serverRole.name))
  t.ok(named.every(({ keyId }) => /^[0-9a-f]{12}$/.test(keyId ?? '')))
  t.ok(changes.every(({ key, requestId }) => (key === null) === (requestId === null)))
})

t.test('changes are listed by pet, time and caller, as a table and as JSON', async (t) => {
  const database = await openRecorded(t, '9223372036854775807,5,available')
  await database.query(`UPDATE inventory SET quantity = 0; UPDATE inventory SET quantity = quantity;
    INSERT INTO inventory VALUES (2, 7, 'sold'); DELETE FROM inventory WHERE pet_id = 2; UPDATE inventory SET pet_id = 3;
    TRUNCATE inventory`)
  const [{ role = '' } = {}] = await database.query('SELECT session_user AS role')
  const lines = (await history(t, database.url, '--json')).split('\n')
  const caller = `,"key":null,"keyId":null,"role":"${role}","requestId":null}`
  t.strictSame(lines.map((line) => line.replace(/^\{"time":"[^"]{24}",/, '').replace(caller, '')).sort(), [
    '"petId":2,"oldQuantity":7,"newQuantity":null,"oldStatus":"sold","newStatus":null',
    '"petId":2,"oldQuantity":null,"newQuantity":7,"oldStatus":null,"newStatus":"sold"',
    '"petId":3,"oldQuantity":null,"newQuantity":0,"oldStatus":null,"newStatus":"available"',
    '"petId":9223372036854775807,"oldQuantity":0,"newQuantity":null,"oldStatus":"available","newStatus":null',
    '"petId":9223372036854775807,"oldQuantity":5,"newQuantity":0,"oldStatus":"available","newStatus":"available"',
    '"petId":null,"oldQuantity":null,"newQuantity":null,"oldStatus":null,"newStatus":null',
  ])
  const table = /^TIME .*\n\S+Z +all +- +- .*\n\S+Z +2 +7 sold +- .*\n\S+Z +2 +- +7 sold +- +\S+ +-$/
  t.match(await history(t, database.url, '2'), table)
  const older = "changed_at = now() - interval '2 h'"
  await database.query(`UPDATE inventory_history SET ${older} WHERE pet_id IS NOT NULL`)
  for (const [options, count] of Object.entries({
    '--by nobody': 0,
    [`--by ${role} --since 3h`]: 6,
    '--since 1h': 1,
    '-5 --since 3h': 1,
    '2 --since 3h': 3,
  }))
    t.equal((await readChanges(t, database.url, options)).length, count, options)
})

t.test('a change of any field of an entry is recorded', async (t) => {
  const database = await openRecorded(t, '1,5,available')
  for (const { field, column, values } of valueColumns) {
    await database.query(`UPDATE inventory SET ${column} = '${values?.at(-1) ?? 7}'`)
    const changes = await readChanges(t, database.url)
    const name = field.replace(/^./, (first) => first.toUpperCase())
    t.match(changes.at(-1), { [`old${name}`]: /./, [`new${name}`]: values?.at(-1) ?? 7 }, field)
  }
})

t.test('a role that names callers itself forges no line, and is shown', async (t) => {
  const database = await openRecorded(t, '1,5,sold')
  const [{ role } = {}] = await database.query('SELECT session_user AS role')
  const forged = [['a\nb'], ['a', 'role x (y)'], ['a', 'ab', '\u001b[2J\u202e'], ['ä'], [['a']], 'a']
  const named = ['a', 'ab', 'r.1']
  const settings = [...forged.map((caller) => ({ 1: caller })), { 1: named, 2: ['a b'] }, { 1: named }]
  for (const [index, callers] of settings.entries()) {
    // As an old application may have it for the whole database.
    const setting = `SET LOCAL standard_conforming_strings = off; SELECT set_config('inventory.callers', '${JSON.stringify(callers)}', true)`
    const commit = await database.hold(`${setting}; UPDATE inventory SET quantity = ${index}`, 'COMMIT')
    await commit()
  }
  const [last, ...others] = (await readChanges(t, database.url)).reverse()
  t.match(last, { key: 'a', keyId: 'ab', requestId: 'r.1', role })
  t.equal(others.length, settings.length - 1)
  for (const change of others) t.match(change, { key: null, keyId: null, requestId: null, role })
})

t.test('prune deletes all that is older, and says how much, also if it is interrupted', async (t) => {
  const database = await openRecorded(t)
  await addMany(database, 15_000)
  for (const ids of ['<= 7500', '> 7500'])
    await database.query(`UPDATE inventory SET quantity = 1 WHERE pet_id ${ids}`)
  const age = (condition: string): Promise<unknown> =>
    database.query(`UPDATE inventory_history SET changed_at = now() - interval '91 d' WHERE ${condition}`)
  // Everything but one long transaction in the middle.
  await age('old_quantity IS NULL OR pet_id > 7500')
  const release = await database.hold('LOCK TABLE inventory_history IN SHARE MODE')
  const program = await startCommand(t, database.url, 'history prune --keep 90d')
  await waitForLocks(database)
  program.process.kill('SIGTERM')
  await release()
  const { code, stdout, stderr } = await program.ended
  t.match({ code, stderr }, { code: 143, stderr: /inventory: interrupted; the other changes remain\n$/ })
  // A busy machine may deliver the signal after the first chunk.
  const deleted = Number(/^(0|[12]0,000) changes deleted/.exec(stdout)?.[1]?.replace(',', ''))
  const rest = (22_500 - deleted).toLocaleString('en')
  t.equal(await history(t, database.url, 'prune --keep 90d'), `${rest} changes deleted`)
  t.equal(await history(t, database.url, 'prune --keep 90d'), '0 changes deleted')
  t.match(await database.query('SELECT count(*) FROM inventory_history'), [{ count: '7500' }])
})

t.test('prune deletes no younger change of a history with partitions or an archive', async (t) => {
  for (const arrange of [
    'CREATE TABLE old () INHERITS (inventory_history)',
    `ALTER TABLE inventory_history RENAME TO former;
     CREATE TABLE inventory_history (LIKE former) PARTITION BY RANGE (changed_at);
     CREATE TABLE old PARTITION OF inventory_history FOR VALUES FROM (MINVALUE) TO ('2020-01-01');
     CREATE TABLE young PARTITION OF inventory_history FOR VALUES FROM ('2020-01-01') TO (MAXVALUE)`,
  ]) {
    const database = await testDatabase(t)
    // The first row of either table has the same ctid.
    await database.query(`${arrange}; INSERT INTO old (statement_id, transaction_id, changed_at, role) VALUES (1, 1, '2019-01-01', 'x');
      INSERT INTO inventory_history (statement_id, transaction_id, changed_at, role) VALUES (2, 1, now(), 'x')`)
    t.equal(await history(t, database.url, 'prune --keep 90d'), '1 change deleted', arrange)
    t.strictSame(await database.query('SELECT statement_id FROM inventory_history'), [{ statement_id: '2' }])
  }
})

t.test('off leaves no trigger behind, and writers are not recorded', async (t) => {
  const database = await openRecorded(t)
  const open = await database.hold("INSERT INTO inventory VALUES (1, 1, 'sold')", 'COMMIT')
  const refused = await inventory(t, database.url, 'history off')
  t.match(refused, { code: 1, stderr: /canceling statement due to lock timeout/ })
  await open()
  t.equal(await history(t, database.url, 'off'), 'The history is off.')
  await database.query('UPDATE inventory SET quantity = 2')
  for (const [command, lines] of Object.entries({ '--json': 1, list: 2, '1 --since 1h': 2 })) {
    const { code, stdout, stderr } = await inventory(t, database.url, `history ${command}`)
    t.strictSame([code, stdout.trim().split('\n').length], [3, lines], command)
    t.match(stderr, /^inventory: the history is off, so later changes are missing; .*\n$/, command)
  }
  const triggers = "SELECT FROM pg_trigger WHERE tgrelid = 'inventory'::regclass"
  t.strictSame(await database.query(triggers), [])
})

t.test('operators read the history, and only the owner of the tables can change it', async (t) => {
  const operator = await testRole(t)
  const database = await testDatabase(t)
  const url = operator.toUrl(database.url)
  await succeed(t, database.url, `migrate up --operator-role ${operator.name}`)
  await turnOn(database.url)
  await addMany(database, 1)
  t.equal((await readChanges(t, url)).length, 1)
  t.match(await inventory(t, url, 'history off'), { code: 1, stderr: /own/ })
  // A writer cannot put a table of its own in the place of the history.
  await database.query(`GRANT TEMPORARY ON DATABASE ${database.name} TO ${operator.name}`)
  const deceive = 'CREATE TEMPORARY TABLE inventory_history (LIKE public.inventory_history INCLUDING ALL)'
  await onServer(url, `${deceive}; UPDATE inventory SET quantity = 2`)
  t.match((await readChanges(t, database.url)).at(-1), { newQuantity: 2, role: operator.name })
})

t.test('once on has ended, every update of a server names its key, and lists stay cached', async (t) => {
  const database = await testDatabase(t, { entries: ['1,0,sold'] })
  // Slow once the history is on, as turning it on waits for writers.
  const isOn = "EXISTS (SELECT FROM pg_trigger WHERE tgname = 'inventory_history_update')"
  await database.query(trigger(`IF ${isOn} THEN PERFORM pg_sleep(4); END IF`))
  const key = await addKey(database, 'ops')
  const { port, metric } = await startApp(t, database.url)
  const load = startLoad(t, { ports: [port], key, clients: 1, pets: [1] })
  await load.next('update', 'success')
  await history(t, database.url, 'on')
  const unnamed = async () => (await readChanges(t, database.url)).filter(({ key }) => key === null).length
  const before = await unnamed()
  for (let updates = 0; updates < 2; updates++) await load.next('update', 'success')
  await load.stop()
  t.equal(await unnamed(), before)
  t.equal(findContradiction(load.readHistory(1), 0), undefined)
  const cached = () => metric('inventory_lists_total', { result: 'unchanged' })
  const list = createSender(port, { authorization: `Bearer ${key}` })
  const cachedBefore = await cached()
  await eventually('an unchanged list', async () => {
    await list('GET', '/v1/inventory')
    return (await cached()) > cachedBefore
  })
})

t.test('the triggers of the history are known by their function, not by their name', async (t) => {
  const database = await testDatabase(t)
  const rename = (name: string, next: string) =>
    database.query(`ALTER TRIGGER ${name} ON inventory RENAME TO ${next}`)
  await database.query(trigger('NULL'))
  await rename('act', 'inventory_history_update')
  const refusal = /trigger "inventory_history_update" for relation "inventory" already exists/
  t.match(await inventory(t, database.url, 'history on'), { code: 1, stderr: refusal })
  t.match(await inventory(t, database.url, 'history'), { code: 3, stderr: /the history is off/ })
  await rename('inventory_history_update', 'own')
  await turnOn(database.url)
  await rename('inventory_history_update', 'renamed')
  await history(t, database.url, '')
  await history(t, database.url, 'off')
  const left = await database.query("SELECT tgname FROM pg_trigger WHERE tgrelid = 'inventory'::regclass")
  t.strictSame(left, [{ tgname: 'own' }])
})
