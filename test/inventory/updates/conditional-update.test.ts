import t from 'tap'
import { endlessLimits, startApp, startService } from '../../support/app.ts'
import { readStock, testDatabase, waitForLocks } from '../../support/database.ts'
import { createSender, json } from '../../support/http.ts'
import { close, listRequest, updateRequest } from '../../support/messages.ts'
import { persistentCaller } from '../../support/program.ts'
import { sendRaw, statusesIn } from '../../support/raw.ts'

/** All increments of the two writers together. */
const INCREMENTS = 400
const PETS = 20

/** For tests that need no other one. Nothing but these ends a wait for a lock. */
const database = await testDatabase(t, { entries: 2 })
await database.query(`ALTER DATABASE ${database.name} SET default_transaction_isolation = 'repeatable read'`)
const { port, send, update } = await startApp(t, database.url, { timings: endlessLimits })

const notMet = {
  code: 'precondition_failed',
  message: 'The entry\'s tag is "7-available", so the precondition failed. Nothing was changed.',
  status: 412,
}

t.test('an update is made only if the entry is as If-Match and If-None-Match require', async (t) => {
  const cases: readonly (readonly [headers: Record<string, string | string[]>, isMade: boolean])[] = [
    [{}, true],
    [{ 'If-Match': '*' }, true],
    [{ 'If-Match': '"7-available"' }, true],
    [{ 'If-Match': '"4-available", "7-available", "9-sold"' }, true],
    [{ 'If-Match': '"a,b",, "7-available",' }, true],
    [{ 'If-Match': ['"x"', '"7-available"'] }, true],
    [{ 'If-Match': 'W/"x", "7-available"' }, true],
    [{ 'If-Match': 'W/"7-available"' }, false],
    [{ 'If-Match': '"7-available-gzip"' }, true],
    [{ 'If-Match': '"7-available--gzip"' }, true],
    [{ 'If-Match': '"7-available;gz"' }, true],
    [{ 'If-Match': '"7-available-gzip-x"' }, false],
    [{ 'If-Match': '"x,y", "7-available-br"' }, true],
    [{ 'If-Match': '"7-available-other"' }, false],
    [{ 'If-Match': '"x,7-available"' }, false],
    [{ 'If-None-Match': 'W/"7-available-gzip"' }, false],
    [{ 'If-Match': '"zzz"' }, false],
    [{ 'If-Match': '' }, false],
    [{ 'If-Match': '"7-sold"' }, false],
    [{ 'If-Match': '"07-available"' }, false],
    [{ 'If-None-Match': '*' }, false],
    [{ 'If-None-Match': '"7-available"' }, false],
    [{ 'If-None-Match': 'W/"7-available"' }, false],
    [{ 'If-None-Match': '"4-available", "7-available", "9-sold"' }, false],
    [{ 'If-None-Match': '"zzz"' }, true],
    [{ 'If-None-Match': '"4-available"' }, true],
    [{ 'If-None-Match': '' }, true],
    [{ 'If-Match': '"7-available"', 'If-None-Match': '*' }, false],
    [{ 'If-Match': '"7-available"', 'If-None-Match': '"9-sold"' }, true],
    [{ 'If-Match': '*', 'If-None-Match': '"7-available"' }, false],
  ]
  // Each has a pet of its own, so that one that fails says nothing of the others.
  const { database, update } = await startService(
    t,
    cases.map((_, petId) => `${petId},7,available`),
  )
  for (const [petId, [headers, isMade]] of cases.entries()) {
    const answer = await update(petId, 8, headers)
    const stored = await database.query('SELECT quantity FROM inventory WHERE pet_id = $1', [petId])
    const quantity = isMade ? 8 : 7
    const body = isMade ? { petId, quantity, status: 'available' } : notMet
    // Compressed, its tag would be weak.
    const caching = isMade ? 'no-transform' : 'no-store, no-transform'
    t.strictSame(
      [answer.status, answer.headers.etag, answer.headers['cache-control'], JSON.parse(answer.text), stored],
      [isMade ? 200 : 412, `"${quantity}-available"`, caching, body, [{ quantity: String(quantity) }]],
      JSON.stringify(headers),
    )
  }
})

t.test('401, 404 and 400 come before 412', async (t) => {
  const update = async (petId: string, header: string, body: object = { quantity: 5 }): Promise<number> =>
    (await send('PATCH', `/v1/inventory/${petId}`, json(body, { 'If-Match': header }))).status
  for (const tag of ['"zzz"', '*', '"0-sold"']) t.equal(await update('3', tag), 404, tag)
  t.equal(await update('x', '"zzz"'), 400)
  t.equal(await update('1', '"zzz"', { quantity: -1 }), 400)
  t.equal(await update('1', '"zzz"', {}), 400)
  const malformed = ['zzz', '0-sold', '"0-sold', '"0-sold" "x"', '*, "x"', 'w/"x"', '"a b"']
  for (const header of malformed) t.equal(await update('1', header), 400, header)
  const stranger = createSender(port)
  const message = json({ quantity: 5 }, { 'If-Match': '"zzz"' })
  t.equal((await stranger('PATCH', '/v1/inventory/1', message)).status, 401)
  t.equal(await readStock(database), '1,0,sold\n2,0,sold')
})

t.test('several updates of one pet that arrive together are decided in their order', async (t) => {
  const updates: readonly (readonly [quantity: number, condition: string, status: number])[] = [
    [1, 'If-Match: "0-sold"', 200],
    [2, 'If-Match: "1-sold"', 200],
    [3, 'If-Match: "1-sold"', 412],
    [4, 'X-None: 1', 200],
    [5, 'If-Match: "4-sold"', 200],
    [6, 'X-None: 1', 200],
    [7, 'X-None: 1', 200],
    [8, 'If-Match: "6-sold"', 412],
    [9, 'If-None-Match: "6-sold"', 200],
  ]
  const messages = updates.map(([quantity, condition]) => updateRequest(quantity, `${condition}\r\n`))
  const text = await sendRaw(port, messages.join('') + listRequest(close))
  t.strictSame(statusesIn(text), [...updates.map(([, , status]) => status), 200])
  t.equal(await readStock(database), '1,9,sold\n2,0,sold')
})

t.test('updates with a condition and without one share statements, whatever array_nulls is', async (t) => {
  const database = await testDatabase(t, { entries: 40 })
  await database.query(`ALTER DATABASE ${database.name} SET array_nulls = off`)
  const { update } = await startApp(t, database.url)
  const met = [{}, { 'If-Match': '"0-sold"' }, { 'If-None-Match': '"1-sold"' }]
  const headers = [...met, { 'If-Match': '"1-sold"' }]
  const updates = Array.from({ length: 40 }, (_, index) => update(index + 1, 6, headers[index % 4]))
  for (const [index, { status }] of (await Promise.all(updates)).entries())
    t.equal(status, index % 4 === 3 ? 412 : 200, String(index))
})

t.test('an update is decided by what a locked row has then, whatever the isolation level', async (t) => {
  const condition = { 'If-Match': '"0-sold"' }
  for (const [headers, change, end, status] of [
    [{}, 'UPDATE inventory SET quantity = 3', 'COMMIT', 200],
    [condition, 'UPDATE inventory SET quantity = 0', 'COMMIT', 200],
    [condition, 'UPDATE inventory SET quantity = 3', 'ROLLBACK', 200],
    [condition, 'UPDATE inventory SET quantity = 3', 'COMMIT', 412],
    [condition, 'DELETE FROM inventory', 'COMMIT', 404],
  ] as const) {
    await database.query('UPDATE inventory SET quantity = 0')
    const release = await database.hold(`${change} WHERE pet_id = 1`, end)
    const waiting = Promise.all([update(1, 1, headers), update(2, 2, headers)])
    await waitForLocks(database)
    await release()
    const [locked, free] = await waiting
    t.equal(locked.status, status, `${change}; ${end}`)
    if (status === 412) t.equal(locked.headers.etag, '"3-sold"', change)
    t.equal(free.status, 200, change)
  }
})

t.test('two writers that increment by compare and set from the tag in each 412 lose nothing', async (t) => {
  const database = await testDatabase(t, { entries: PETS })
  const apps = [1, 2].map(() => startApp(t, database.url))
  const ports = (await Promise.all(apps)).map(({ port }) => port)
  let conflicts = 0
  const increment = async (port: number, petId: number): Promise<void> => {
    const send = persistentCaller(t, port)
    let tag = '"0-sold"'
    for (let made = 0; made < INCREMENTS / PETS / ports.length; ) {
      const update = json({ quantity: Number.parseInt(tag.slice(1), 10) + 1 }, { 'If-Match': tag })
      const { status, headers, text } = await send('PATCH', `/v1/inventory/${petId}`, update)
      if (status === 200) made++
      else if (status === 412) conflicts++
      else throw new Error(`An increment was answered with ${status} ${text}`)
      t.not(headers.etag, tag)
      tag = String(headers.etag)
    }
  }
  const pets = Array.from({ length: PETS }, (_, index) => index + 1)
  await Promise.all(pets.flatMap((petId) => ports.map((port) => increment(port, petId))))
  t.strictSame(await database.query('SELECT sum(quantity) FROM inventory'), [{ sum: String(INCREMENTS) }])
  t.ok(conflicts > 0, `${conflicts} conflicts`)
})
