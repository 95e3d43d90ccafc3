import t from 'tap'
import { startService } from '../../support/app.ts'
import { readStock } from '../../support/database.ts'
import { isError, json } from '../../support/http.ts'

const { database, send, update } = await startService(t, ['1,9,available'])

t.test('an update sets the quantity alone, and returns the entry, whose petId is exact', async (t) => {
  const { database, update } = await startService(t)
  const ids = '-9223372036854775808 -5 0 9007199254740992 9007199254740993 9223372036854775807'.split(' ')
  await database.query(`INSERT INTO inventory SELECT unnest('{${ids}}'::bigint[]), 0, 'pending'`)
  for (const [index, id] of ids.entries()) {
    const { status, headers, text } = await update(id, index + 1)
    t.strictSame([status, headers['content-type']], [200, 'application/json; charset=utf-8'])
    t.equal(text, `{"petId":${id},"quantity":${index + 1},"status":"pending"}`)
    const stock = ids.map((id, other) => `${id},${other > index ? 0 : other + 1},pending`)
    t.equal(await readStock(database), stock.join('\n'), 'no other entry has changed')
  }
})

t.test('every JSON spelling of an integer within the bounds is accepted', async (t) => {
  for (const literal of '-0 2147483647.000 10.0 1e2 1.5E1 120e-1'.split(' ')) {
    const answer = await send('PATCH', '/v1/inventory/1', json(`{"quantity":${literal}}`))
    t.equal(answer.status, 200, literal)
    t.equal(answer.text, `{"petId":1,"quantity":${Math.abs(Number(literal))},"status":"available"}`)
  }
})

t.test('a body without a valid integer is a 400, also for a pet without an entry', async (t) => {
  await update(1, 9)
  // What is no integer from 0 to 2147483647, or no JSON.
  const values =
    'null true false "5" "" [5] {} 1.5 -1 2147483648 -2147483649 9007199254740993 1e400 4.99999999999999999999 1e-400 ' +
    '2147483647.0000000001 05 +5 0x10 NaN Infinity'
  const bodies = [
    ...values.split(' ').map((value) => `{"quantity":${value}}`),
    '{}',
    '{"quantity":5,"quantity":6}',
    '{"quantity":5} x',
    '{"__proto__":{"quantity":5}}',
    '{"constructor":{"prototype":{"quantity":5}}}',
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
  isError(t, await update(2, -1), 400, 'invalid_request', 'a pet without an entry')
  t.equal(await readStock(database), '1,9,available')
})

t.test('the message for an invalid quantity or petId says what is valid', async (t) => {
  for (const [petId, body, message] of [
    ['1', '{"quantity":"5"}', /quantity must be integer\./],
    ['1', '{"quantity":2147483648}', /quantity must be <= 2147483647\./],
    ['1', '{}', /The body must have required property 'quantity'\./],
    ['1', '[]', /The body must be object\./],
    ['1', '{', /body must be a JSON object in UTF-8/],
    ['01', '{"quantity":5}', /petId in the path must be a plain decimal integer from -9223372036854775808 /],
    ['1'.repeat(101), '{"quantity":5}', /petId in the path is too long\. The maximum is 100 characters\./],
  ] as const)
    t.match((await send('PATCH', `/v1/inventory/${petId}`, { ...json(''), body })).text, message)
})
