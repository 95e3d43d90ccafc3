import t from 'tap'
import { startApp, startService } from '../../support/app.ts'
import { addEntries, testDatabase } from '../../support/database.ts'
import { isError } from '../../support/error-shape.ts'
import { json } from '../../support/http.ts'

t.test('an update sets the quantity, keeps the status and returns the entry', async (t) => {
  const { database, send } = await startService(t, [
    ['7', 1, 'pending'],
    ['8', 2, 'sold'],
  ])
  const answer = await send('PATCH', '/v1/inventory/7', json({ quantity: 42 }))
  t.equal(answer.status, 200)
  t.equal(answer.headers['content-type'], 'application/json; charset=utf-8')
  t.equal(answer.text, '{"petId":7,"quantity":42,"status":"pending"}')
  t.strictSame(await database.query('SELECT * FROM inventory ORDER BY pet_id'), [
    { pet_id: '7', quantity: '42', status: 'pending' },
    { pet_id: '8', quantity: '2', status: 'sold' },
  ])
})

t.test('petId is exact over its whole range', async (t) => {
  const { database, send } = await startService(t)
  const ids = [
    '9007199254740992',
    '9007199254740993',
    '9223372036854775807',
    '-9223372036854775808',
    '-5',
    '0',
  ]
  await addEntries(
    database,
    ids.map((id) => [id, 0, 'available'] as const),
  )
  for (const [index, id] of ids.entries()) {
    const answer = await send('PATCH', `/v1/inventory/${id}`, json({ quantity: index + 1 }))
    t.equal(answer.text, `{"petId":${id},"quantity":${index + 1},"status":"available"}`)
  }
  const rows = await database.query('SELECT pet_id, quantity FROM inventory')
  t.strictSame(
    new Map(rows.map((row) => [row['pet_id'], row['quantity']])),
    new Map(ids.map((id, index) => [id, String(index + 1)])),
  )
})

t.test('every JSON spelling of an integer within the bounds is accepted', async (t) => {
  const { send } = await startService(t, [['1', 9, 'available']])
  const spellings = [
    ['0', 0],
    ['-0', 0],
    ['2147483647', 2147483647],
    ['10.0', 10],
    ['1e2', 100],
    ['1.5E1', 15],
    ['2147483647.000', 2147483647],
    ['120e-1', 12],
  ] as const
  for (const [literal, quantity] of spellings) {
    const answer = await send('PATCH', '/v1/inventory/1', json(`{"quantity":${literal}}`))
    t.equal(answer.status, 200, literal)
    t.equal(answer.text, `{"petId":1,"quantity":${quantity},"status":"available"}`)
  }
})

t.test('a body without a valid integer is refused and writes nothing', async (t) => {
  const { database, send } = await startService(t, [['1', 9, 'available']])
  // What is no integer from 0 to 2147483647, or no JSON.
  const values =
    'null true false "5" "" [5] {} 1.5 -1 2147483648 -2147483649 9007199254740993 1e400 4.99999999999999999999 1e-400 ' +
    '2147483647.0000000001 05 +5 0x10 NaN Infinity'
  const bodies = [
    ...values.split(' ').map((value) => `{"quantity":${value}}`),
    '{}',
    '{"quanttiy":5}',
    '{"quantity":5,"quantity":6}',
    '{"quantity":5} x',
    '{"quantity":5',
    '{"__proto__":{"quantity":5}}',
    '{"constructor":{"prototype":{"quantity":5}}}',
    "{'quantity':5}",
    '[{"quantity":5}]',
    ...['5', '"5"', 'null', 'true', '', ' '],
    '\ufeff{"quantity":5}',
    `${'['.repeat(2000)}`,
    Buffer.concat([Buffer.from('{"quantity":5,"note":"'), Buffer.from([0xff]), Buffer.from('"}')]),
    Buffer.from('{"quantity":5}', 'utf16le'),
  ]
  for (const body of bodies) {
    const answer = await send('PATCH', '/v1/inventory/1', { ...json(''), body })
    isError(t, answer, 400, 'invalid_request', body.toString().slice(0, 50))
  }
  isError(t, await send('PATCH', '/v1/inventory/1'), 400, 'invalid_request')
  t.strictSame(await database.query('SELECT quantity FROM inventory'), [{ quantity: '9' }])
})

t.test('the message for an invalid quantity or petId says what is valid', async (t) => {
  const { send } = await startService(t)
  const messageTo = async (path: string, body: string): Promise<unknown> =>
    JSON.parse((await send('PATCH', path, json(body))).text).message
  t.match(
    await messageTo('/v1/inventory/1', '{"quantity":"5"}'),
    /quantity must be an integer from 0 to 2147483647/,
  )
  t.match(
    await messageTo('/v1/inventory/1', '{}'),
    /must have the field quantity: an integer from 0 to 2147483647/,
  )
  t.match(await messageTo('/v1/inventory/1', '[]'), /body must be a JSON object/)
  t.match(await messageTo('/v1/inventory/1', '{'), /body must be UTF-8 JSON/)
  t.match(await messageTo('/v1/inventory/1', ''), /body is empty/)
  t.match(
    await messageTo('/v1/inventory/01', '{"quantity":5}'),
    /petId in the path must be an integer from -9223372036854775808 to 9223372036854775807 in plain decimal/,
  )
  t.equal(
    await messageTo(`/v1/inventory/${'1'.repeat(101)}`, '{"quantity":5}'),
    'petId in the path is too long. The maximum is 100 characters.',
  )
})

t.test('a petId that is no plain decimal int64 is refused and writes nothing', async (t) => {
  const { database, send } = await startService(t, [
    ['5', 9, 'available'],
    ['16', 9, 'available'],
    ['1000', 9, 'available'],
  ])
  const spellings =
    '05 +5 %2B5 -0 --5 5.0 5. .5 1e3 0x10 0b1 1_000 1,000 %205 5%20 5%00 5%0a ٥ abc null NaN Infinity -Infinity ' +
    "9223372036854775808 -9223372036854775809 99999999999999999999999999999999 5;drop 5'"
  for (const spelling of spellings.split(' ')) {
    const path = `/v1/inventory/${encodeURI(spelling).replaceAll('%25', '%')}`
    isError(t, await send('PATCH', path, json({ quantity: 1 })), 400, 'invalid_request', spelling)
  }
  t.strictSame(await database.query('SELECT DISTINCT quantity FROM inventory'), [{ quantity: '9' }])
})

t.test('a pet without an entry gets a 404, and an invalid body a 400 before that', async (t) => {
  const { database, send } = await startService(t)
  for (const id of ['1', '-1', '9223372036854775807']) {
    isError(t, await send('PATCH', `/v1/inventory/${id}`, json({ quantity: 1 })), 404, 'not_found')
  }
  isError(t, await send('PATCH', '/v1/inventory/1', json({ quantity: -1 })), 400, 'invalid_request')
  t.strictSame(await database.query('SELECT * FROM inventory'), [])
})

for (const type of ['integer', 'numeric']) {
  t.test(`a pet is found whose id is stored as ${type} in a table under a view`, async (t) => {
    const database = await testDatabase(t)
    await addEntries(database, [
      ['1', 0, 'sold'],
      ['2', 0, 'pending'],
    ])
    await database.query(`ALTER TABLE inventory ALTER pet_id TYPE ${type}; ALTER TABLE inventory RENAME TO stock;
      CREATE VIEW inventory AS SELECT * FROM stock`)
    const { send } = await startApp(t, database.url)
    const update = async (petId: string, quantity: number, headers = {}): Promise<number> =>
      (await send('PATCH', `/v1/inventory/${petId}`, json({ quantity }, headers))).status
    t.equal(await update('1', 5), 200)
    t.equal(await update('1', 6, { 'if-match': '"5-sold"' }), 200)
    t.equal(await update('1', 6, { 'if-match': '"5-sold"' }), 412)
    t.equal(await update('3000000000', 7), 404)
    const several = ['1', '2', '3', '3000000000'].map((id) => update(id, 7))
    t.strictSame(await Promise.all(several), [200, 200, 404, 404])
    const release = await database.hold('SELECT FROM stock WHERE pet_id = 1 FOR UPDATE')
    const waiting = update('1', 8)
    t.equal(await update('2', 8), 200)
    await release()
    t.equal(await waiting, 200)
  })
}
