import { createHash } from 'node:crypto'
import pg from 'pg'
import t from 'tap'
import { isApiKey } from '../../src/api-keys/key.ts'
import { startApp } from '../support/app.ts'
import { inventory, succeed } from '../support/command.ts'
import { addEntries, addKey, testDatabase } from '../support/database.ts'
import { callerOf, json } from '../support/http.ts'
import { testRole } from '../support/roles.ts'

t.test('create prints the key alone on standard output, and keeps nothing but its digest', async (t) => {
  const database = await testDatabase(t)
  const { code, stdout, stderr } = await inventory(t, database.url, 'keys', 'create', '--name', 'billing')
  t.equal(code, 0)
  t.match(stdout, /^inv_[A-Za-z0-9]{49}\n$/)
  const key = stdout.trim()
  t.ok(isApiKey(key))
  t.notMatch(stderr, key)
  t.match(stderr, /^The key billing \([0-9a-f]{12}\) does not expire\. It is shown only once:\n$/)
  const [row] = await database.query('SELECT * FROM api_keys')
  t.match(row, { name: 'billing', expires_at: null, revoked_at: null })
  t.equal(row?.['digest'], `\\x${createHash('sha256').update(key).digest('hex')}`)
})

t.test('--expires sets when the key ends', async (t) => {
  const database = await testDatabase(t)
  for (const [duration, interval] of [
    ['90d', '90 days'],
    ['24h', '24 hours'],
    ['30m', '30 minutes'],
    ['2w', '14 days'],
  ] as const) {
    const { stderr } = await inventory(
      t,
      database.url,
      'keys',
      'create',
      '--name',
      duration,
      '--expires',
      duration,
    )
    t.match(stderr, /expires \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\./)
    t.strictSame(
      await database.query(
        `SELECT extract(epoch FROM expires_at - created_at) = extract(epoch FROM $2::interval) AS exact
         FROM api_keys WHERE name = $1`,
        [duration, interval],
      ),
      [{ exact: 't' }],
    )
  }
})

t.test(
  'create refuses a name that an active key has, and takes one whose key has expired or was revoked',
  async (t) => {
    const database = await testDatabase(t)
    await addKey(database, 'billing', '1 day')
    const again = await inventory(t, database.url, 'keys', 'create', '--name', 'billing')
    t.equal(again.code, 1)
    t.equal(again.stdout, '')
    t.equal(
      again.stderr,
      'inventory: A key named "billing" exists already. Replace it with "inventory keys rotate billing", or revoke it first.\n',
    )
    await succeed(t, database.url, 'keys', 'revoke', 'billing')
    await succeed(t, database.url, 'keys', 'create', '--name', 'billing')
    await database.query(
      "UPDATE api_keys SET created_at = now() - interval '2 days', expires_at = now() - interval '1 day' WHERE revoked_at IS NULL",
    )
    await succeed(t, database.url, 'keys', 'create', '--name', 'billing')
    const { stdout } = await inventory(t, database.url, 'keys', 'list', '--all', '--json')
    t.strictSame(
      JSON.parse(stdout).map((key: { state: string }) => key.state),
      ['expired', 'revoked', 'active'],
    )
  },
)

t.test('one of several concurrent creations of a key with one name succeeds', async (t) => {
  const database = await testDatabase(t)
  const outcomes = await Promise.all(
    Array.from({ length: 4 }, () => inventory(t, database.url, 'keys', 'create', '--name', 'billing')),
  )
  t.strictSame(outcomes.map(({ code }) => code).sort(), [0, 1, 1, 1])
})

t.test('list shows a table without colours, or JSON, and no secret', async (t) => {
  const database = await testDatabase(t)
  const none = await inventory(t, database.url, 'keys', 'list')
  t.strictSame([none.code, none.stdout], [0, ''])
  t.match(none.stderr, /inventory keys create --name ops/)
  t.equal(await succeed(t, database.url, 'keys', 'list', '--json'), '[]')

  const key = await succeed(t, database.url, 'keys', 'create', '--name', 'shop', '--expires', '1d')
  await succeed(t, database.url, 'keys', 'create', '--name', 'billing')
  const { stdout, stderr } = await inventory(t, database.url, 'keys', 'list')
  t.equal(stderr, '')
  const time = '\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ'
  t.match(
    stdout,
    new RegExp(
      [
        '^NAME +ID +STATE +CREATED +EXPIRES +REVOKED +ACCESS\\n',
        `billing +[0-9a-f]{12} +active +${time} +- +- +read-write\\n`,
        `shop +[0-9a-f]{12} +active +${time} +${time} +- +read-write\\n$`,
      ].join(''),
    ),
  )
  const json = await inventory(t, database.url, 'keys', 'list', '--json')
  t.match(JSON.parse(json.stdout), [
    { name: 'billing', state: 'active', expiresAt: null, revokedAt: null },
    { name: 'shop', state: 'active' },
  ])
  const digest = createHash('sha256').update(key).digest('hex')
  t.notMatch(stdout + json.stdout, new RegExp(`${key}|${digest}`))
})

t.test('a read-only key cannot change the stock, nor can the one that replaces it', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  const { port } = await startApp(t, database.url)
  const first = await inventory(t, database.url, 'keys', 'create', '--name', 'shop', '--read-only')
  t.match(first.stderr, /^The key shop \([0-9a-f]{12}\) is read-only and does not expire\./)
  const second = await succeed(t, database.url, 'keys', 'rotate', 'shop')
  for (const key of [first.stdout.trim(), second]) {
    const send = callerOf(port, { authorization: `Bearer ${key}` })
    t.equal((await send('GET', '/v1/inventory')).status, 200)
    t.match(await send('PATCH', '/v1/inventory/1', json({ quantity: 1 })), {
      status: 403,
      text: /"code":"forbidden"/,
    })
  }
  t.match(JSON.parse(await succeed(t, database.url, 'keys', 'list', '--json')), [
    { readOnly: true },
    { readOnly: true },
  ])
  t.match(await succeed(t, database.url, 'keys', 'list'), /shop .* read-only$/)
})

t.test('revoke revokes every key of a name, or the one with an id', async (t) => {
  const database = await testDatabase(t)
  await succeed(t, database.url, 'keys', 'create', '--name', 'billing')
  await succeed(t, database.url, 'keys', 'rotate', 'billing')
  const [oldest] = JSON.parse(await succeed(t, database.url, 'keys', 'list', '--json'))
  const states = async (): Promise<unknown[]> =>
    JSON.parse(await succeed(t, database.url, 'keys', 'list', '--all', '--json')).map(
      (key: { state: string }) => key.state,
    )

  const one = await inventory(t, database.url, 'keys', 'revoke', 'billing', '--id', oldest.id)
  t.strictSame([one.code, one.stdout], [0, ''])
  t.equal(one.stderr, `The key billing (${oldest.id}) is revoked.\n`)
  t.strictSame(await states(), ['revoked', 'active'])
  t.equal(
    (await inventory(t, database.url, 'keys', 'revoke', 'billing', '--id', oldest.id)).code,
    1,
    'it has ended',
  )

  await succeed(t, database.url, 'keys', 'revoke', 'billing')
  t.strictSame(await states(), ['revoked', 'revoked'])
  const none = await inventory(t, database.url, 'keys', 'revoke', 'billing')
  t.equal(none.code, 1)
  t.match(none.stderr, /There is no active key named "billing"/)
})

t.test(
  'after several rotations within the overlap, also at once, two keys of the name are valid',
  async (t) => {
    const database = await testDatabase(t)
    await succeed(t, database.url, 'keys', 'create', '--name', 'billing')
    await succeed(t, database.url, 'keys', 'rotate', 'billing')
    const { stderr } = await inventory(t, database.url, 'keys', 'rotate', 'billing')
    t.match(stderr, /^The old key \(.{12}\) is revoked\.\nThe old key \(.{12}\) is valid until .*\nThe key /)
    await Promise.all(Array.from({ length: 4 }, () => succeed(t, database.url, 'keys', 'rotate', 'billing')))
    t.strictSame(await database.query('SELECT count(*) FROM api_keys WHERE revoked_at IS NULL'), [
      { count: '1' },
    ])
    t.strictSame(await database.query('SELECT count(*) FROM api_keys WHERE revoked_at > now()'), [
      { count: '1' },
    ])
  },
)

t.test('rotate makes a key of the same name and lifetime, and the old one expires on its own', async (t) => {
  const database = await testDatabase(t)
  const old = await succeed(t, database.url, 'keys', 'create', '--name', 'billing', '--expires', '90d')
  const { code, stdout, stderr } = await inventory(
    t,
    database.url,
    'keys',
    'rotate',
    'billing',
    '--overlap',
    '12h',
  )
  t.equal(code, 0)
  t.match(stdout, /^inv_[A-Za-z0-9]{49}\n$/)
  t.not(stdout.trim(), old)
  t.match(
    stderr,
    /^The old key \([0-9a-f]{12}\) is valid until .*Z\.\nThe key billing .* expires .*Z\. It is shown/,
  )
  t.strictSame(
    await database.query(
      `SELECT expires_at - created_at = interval '90 days' AS lifetime,
              revoked_at - now() BETWEEN interval '11:59' AND interval '12:00' AS overlap
       FROM api_keys ORDER BY created_at`,
    ),
    [
      { lifetime: 't', overlap: 't' },
      { lifetime: 't', overlap: null },
    ],
  )
  t.equal(
    (await inventory(t, database.url, 'keys', 'rotate', 'billing', '--overlap', '0h', '--expires', '1d'))
      .code,
    0,
  )
  t.strictSame(
    await database.query(
      "SELECT count(*) FILTER (WHERE revoked_at <= now()) AS ended, count(*) FILTER (WHERE expires_at < now() + interval '2 days') AS soon FROM api_keys",
    ),
    [{ ended: '2', soon: '1' }],
  )
  await addKey(database, 'expired', '-1 hour')
  for (const name of ['shop', 'expired']) {
    const inactive = await inventory(t, database.url, 'keys', 'rotate', name)
    t.strictSame([inactive.code, inactive.stdout], [1, ''])
    t.match(inactive.stderr, `There is no active key named "${name}"`)
  }
})

t.test('a session that has locked a key is named within seconds, and nothing is changed', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t)
  await database.query(`GRANT SELECT, UPDATE ON api_keys TO ${role.name}`)
  await addKey(database, 'billing')
  const holder = new pg.Client({
    connectionString: role.urlOf(database.url),
    application_name: 'psql\u001b[31m',
  })
  await holder.connect()
  await holder.query('BEGIN; SELECT FROM api_keys FOR UPDATE')
  const { rows } = await holder.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
  for (const command of ['revoke', 'rotate']) {
    const { code, stdout, stderr } = await inventory(t, database.url, 'keys', command, 'billing')
    t.strictSame([code, stdout], [1, ''])
    const named = `Process ${rows[0]?.pid} of role ${role.name} `
    t.match(stderr, `inventory: Another session has locked the key; nothing was changed. ${named}`)
    t.match(stderr, 'SELECT pg_terminate_backend(')
    t.notMatch(stderr, '\u001b')
  }
  await holder.end()
  await succeed(t, database.url, 'keys', 'revoke', 'billing')
})

t.test('a policy that would hide keys is an error', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t)
  await database.query(
    `GRANT ALL ON api_keys TO ${role.name};
     ALTER TABLE api_keys ENABLE ROW LEVEL SECURITY`,
  )
  await addKey(database, 'billing')
  for (const args of [['list'], ['revoke', 'billing'], ['rotate', 'billing']])
    t.match(await inventory(t, role.urlOf(database.url), 'keys', ...args), {
      code: 1,
      stdout: '',
      stderr: /^inventory: Row security would hide rows from this role: /,
    })
})

t.test('wrong values are refused with what they must be', async (t) => {
  const faults: [args: string[], message: RegExp][] = [
    [['create', '--name', 'a b'], /1 to 64 letters, digits, hyphens and underscores/],
    [['create', '--name', 'x', '--expires', '0d'], /greater than zero/],
    [['create', '--name', 'x', '--expires', 'soon'], /such as 90d or 24h/],
    [['create', '--name', 'x', '--expires', '-1d'], /such as 90d or 24h/],
    [['rotate', 'x', '--overlap', '24'], /such as 90d or 24h/],
    [['create', '--name', 'x', '--expires', '20160m'], /at most four digits/],
    [['revoke', 'x', '--id', 'zz'], /12 hexadecimal digits/],
  ]
  for (const [args, message] of faults) {
    const { code, stdout, stderr } = await inventory(t, 'postgres://nobody@127.0.0.1:1/none', 'keys', ...args)
    t.strictSame([code, stdout], [2, ''], args.join(' '))
    t.match(stderr, message)
  }
})
