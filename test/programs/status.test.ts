import { once } from 'node:events'
import { createServer } from 'node:net'
import t from 'tap'
import { inventory, succeed } from '../support/command.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { testRole } from '../support/roles.ts'

t.test('status shows the server, the schema, the entries and the keys', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [
    ['1', 9, 'sold'],
    ['2', 9, 'sold'],
    ['3', 9, 'available'],
  ])
  for (const args of [
    ['create', '--name', 'shop'],
    ['create', '--name', 'billing'],
    ['rotate', 'billing'],
    ['revoke', 'shop'],
  ]) {
    await succeed(t, database.url, 'keys', ...args)
  }
  const { host, port, pathname } = new URL(database.url)
  const address = `${port === '' ? `${host}:5432` : host}${pathname}`
  const { code, stdout, stderr } = await inventory(t, database.url, 'status')
  t.strictSame([code, stderr], [0, ''])
  const lines = stdout.split('\n')
  t.match(lines[0], /^Database {5}PostgreSQL \d+(\.|beta|rc)\d+ at /)
  t.ok(lines[0]?.endsWith(` at ${address}`))
  t.match(lines[1], /^Schema {7}up to date \(\d{17}_[a-z-]+\)$/)
  t.equal(lines[2], 'Entries      1 available, 0 pending, 2 sold')
  t.equal(lines[3], 'Keys         1 active, 1 ending, 0 expired, 1 revoked')

  const json = await inventory(t, database.url, 'status', '--json')
  t.equal(json.code, 0)
  t.match(JSON.parse(json.stdout), {
    database: { version: /^\d+(\.|beta|rc)\d+$/, address },
    schema: { expected: /^\d{17}_/, pending: [], unknown: [] },
    entries: { available: 1, pending: 0, sold: 2 },
    keys: { active: 1, ending: 1, expired: 0, revoked: 1 },
  })
})

t.test('status shows the last backup and read-only sessions, and warns of disabled triggers', async (t) => {
  const database = await testDatabase(t)
  const name = new URL(database.url).pathname.slice(1)
  await succeed(t, database.url, 'history', 'on')
  await database.query(`COMMENT ON DATABASE "${name}" IS 'Last backup: unknown'`)
  const before = await succeed(t, database.url, 'status')
  t.notMatch(before, /Warning|read-only/)
  t.match(before, /^Last backup {2}none recorded$/m)
  await database.query(`COMMENT ON DATABASE "${name}" IS 'Last backup: 2026-11-24T03:00:00Z'`)
  await database.query('ALTER TABLE inventory DISABLE TRIGGER ALL')
  await database.query(`ALTER DATABASE ${name} SET default_transaction_read_only = on`)
  const { code, stdout } = await inventory(t, database.url, 'status')
  t.equal(code, 0)
  t.match(stdout, /^Database .*, read-only: default_transaction_read_only is on\n/)
  t.match(stdout, /^Warning {6}the trigger \w+ is disabled, .* "ALTER TABLE inventory ENABLE TRIGGER \w+"$/m)
  t.match(stdout, /^Last backup {2}2026-11-24T03:00:00\.000Z$/m)
  const { warnings, lastBackup } = JSON.parse(await succeed(t, database.url, 'status', '--json'))
  t.equal(lastBackup, '2026-11-24T03:00:00.000Z')
  t.ok(warnings.length >= 3)
})

t.test("status shows the missing privileges of the server's role, whichever role asks", async (t) => {
  const server = await testRole(t)
  const operator = await testRole(t)
  const database = await testDatabase(t)
  const roles = ['--server-role', server.name, '--operator-role', operator.name]
  await succeed(t, database.url, 'migrate', 'up', ...roles)
  const status = ['status', '--server-role', server.name]
  const complete = `Server role  ${server.name} has the privileges that the server needs`
  for (const url of [database.url, operator.urlOf(database.url), server.urlOf(database.url)]) {
    const { code, stdout } = await inventory(t, url, ...status)
    t.equal(code, 0, stdout)
    t.match(stdout, complete)
  }
  t.notMatch(await succeed(t, database.url, 'status'), 'Server role')
  t.match(await inventory(t, database.url, 'status', '--server-role', 'nobody'), {
    code: 1,
    stdout: '',
    stderr: 'inventory: There is no role "nobody".\n',
  })

  for (const [privilege, missing] of [
    ['SELECT ON pgmigrations', 'SELECT on pgmigrations'],
    ['SELECT ON inventory', 'SELECT on inventory'],
    ['UPDATE (quantity) ON inventory', 'UPDATE (quantity) on inventory'],
    ['SELECT ON api_keys', 'SELECT on api_keys'],
  ] as const) {
    await database.query(`REVOKE ${privilege} FROM ${server.name}`)
    const { code, stdout, stderr } = await inventory(t, operator.urlOf(database.url), ...status)
    t.strictSame([code, stderr], [3, ''])
    t.match(
      stdout,
      `Server role  ${server.name} lacks ${missing}; run "inventory migrate up --server-role ${server.name}"`,
    )
    const json = JSON.parse((await inventory(t, database.url, ...status, '--json')).stdout)
    t.strictSame(json.serverRole, { role: server.name, missing: [missing] })
    await succeed(t, database.url, 'migrate', 'up', '--server-role', server.name)
    await succeed(t, operator.urlOf(database.url), ...status)
  }
})

t.test('a schema behind this version is reported, also by the exit code', async (t) => {
  const database = await testDatabase(t, { empty: true })
  const { code, stdout, stderr } = await inventory(t, database.url, 'status')
  t.strictSame([code, stderr], [3, ''])
  t.match(stdout, /Schema {7}behind; run "inventory migrate up" to apply \d{17}_create-inventory, \d{17}_/)
  t.match(stdout, /Entries {6}no table yet\nKeys {9}no table yet\n/)
  const json = await inventory(t, database.url, 'status', '--json')
  t.equal(json.code, 3)
  t.match(JSON.parse(json.stdout), { entries: null, keys: null })
  await succeed(t, database.url, 'migrate', 'up')
  await succeed(t, database.url, 'status')
})

t.test('a schema ahead of this version is no error', async (t) => {
  const database = await testDatabase(t)
  await database.query("INSERT INTO pgmigrations (name, run_on) VALUES ('29991231000000000_later', now())")
  const { code, stdout } = await inventory(t, database.url, 'status')
  t.equal(code, 0)
  t.match(stdout, /newer than this version, by 29991231000000000_later/)
})

t.test('a database that cannot be used is reported in one message without its password', async (t) => {
  const database = await testDatabase(t)
  const empty = await testDatabase(t, { empty: true })
  const wrong = new URL(database.url)
  wrong.username = 'nobody_here'
  wrong.password = 'the-wrong-one'
  const silent = createServer()
  t.teardown(() => silent.close())
  silent.listen(0, '127.0.0.1')
  await once(silent, 'listening')
  const address = silent.address()
  const port = typeof address === 'object' ? address?.port : undefined
  for (const [url, message] of [
    [
      'postgres://u:secret@127.0.0.1:1/x',
      /^inventory: PostgreSQL cannot be reached: connect ECONNREFUSED 127\.0\.0\.1:1\. Check that it is running/,
    ],
    [
      'postgres://u:secret@host.invalid/x',
      /^inventory: PostgreSQL cannot be reached: getaddrinfo \w+ host\.invalid\. Check /,
    ],
    [wrong.href, /^inventory: PostgreSQL refuses the connection: .* Check DATABASE_URL\.\n$/],
    [
      `postgres://u:secret@127.0.0.1:${port}/x`,
      /^inventory: PostgreSQL cannot be reached: .*timeout.*\. Check .*, the network, and DATABASE_URL\.\n$/,
    ],
    [
      empty.url,
      /^inventory: The database schema is behind this version, or the role may not use it: relation "\w+" does not exist\. Run "inventory migrate up"/,
    ],
  ] as const) {
    for (const args of [['keys', 'list'], ['export']]) {
      const { code, stdout, stderr } = await inventory(t, url, ...args)
      t.strictSame([code, stdout], [1, ''], args.join(' '))
      t.match(stderr, message)
      t.notMatch(stderr, /\n\s+at |secret|the-wrong-one/)
    }
  }
})
