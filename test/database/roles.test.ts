import { readFile } from 'node:fs/promises'
import path from 'node:path'
import pg from 'pg'
import t, { type Test } from 'tap'
import { probeLimits } from '../../src/database/pool.ts'
import { startApp } from '../support/app.ts'
import { runCommand } from '../support/command.ts'
import { addEntries, type TestDatabase, testDatabase } from '../support/database.ts'
import { eventually, until } from '../support/eventually.ts'
import { callerOf, json } from '../support/http.ts'
import type { Outcome } from '../support/program.ts'
import { type TestRole, testRole } from '../support/roles.ts'
import { root } from '../support/root.ts'

const FORBIDDEN = { code: '42501' }

interface Setup {
  readonly database: TestDatabase
  readonly server: TestRole
  readonly operator: TestRole
}

/** A database with both roles, made by the statements of the documentation and the command that it names. */
async function setUp(t: Test): Promise<Setup> {
  const server = await testRole(t)
  const operator = await testRole(t)
  const database = await testDatabase(t)
  const page = await readFile(path.join(root, 'docs/integrations.md'), 'utf8')
  const [, statements = ''] = /```sql\n(CREATE ROLE inventory_server[\s\S]*?)```/.exec(page) ?? []
  for (const statement of statements.split(';\n').filter((text) => !/^\s*CREATE ROLE/.test(text))) {
    const text = statement
      .replaceAll('inventory_server', server.name)
      .replaceAll('inventory_operator', operator.name)
      .replaceAll('DATABASE inventory', `DATABASE ${new URL(database.url).pathname.slice(1)}`)
    if (text.trim() !== '') await database.query(text)
  }
  const roles = ['--server-role', server.name, '--operator-role', operator.name]
  const { code, stdout, stderr } = await inventory(
    t,
    { DATABASE_URL: database.url },
    'migrate',
    'up',
    ...roles,
  )
  t.equal(code, 0, stderr)
  t.match(stdout, `Granted the role "${server.name}" what the server needs.`)
  return { database, server, operator }
}

async function inventory(t: Test, env: Record<string, string>, ...args: string[]): Promise<Outcome> {
  return runCommand(t, args, { env })
}

async function connect(t: Test, url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  t.teardown(() => client.end())
  return client
}

t.test('as its role the server can do all of its work', async (t) => {
  const { database, server, operator } = await setUp(t)
  await addEntries(database, [
    ['1', 9, 'available'],
    ['2', 9, 'sold'],
  ])
  const { port, log } = await startApp(t, server.urlOf(database.url), {
    env: { API_KEYS: '' },
    // So that no read of the keys is late on a busy machine, which would be warned of.
    timings: { probe: { ...probeLimits, connect: 60_000, answer: 60_000 } },
  })
  t.equal((await callerOf(port)('GET', '/readyz')).text, '{"status":"ready"}')

  const made = await inventory(
    t,
    { DATABASE_URL: server.urlOf(database.url), OPERATOR_DATABASE_URL: operator.urlOf(database.url) },
    ...['keys', 'create', '--name', 'ops'],
  )
  t.equal(made.code, 0, made.stderr)
  const send = callerOf(port, { authorization: `Bearer ${made.stdout.trim()}` })
  t.equal((await send('PATCH', '/v1/inventory/1', json({ quantity: 5 }))).status, 200)
  const together = [1, 2].map((id) => send('PATCH', `/v1/inventory/${id}`, json({ quantity: 6 })))
  t.strictSame(
    (await Promise.all(together)).map(({ status }) => status),
    [200, 200],
  )
  t.equal(
    (await send('GET', '/v1/inventory')).text,
    '[{"petId":1,"quantity":6,"status":"available"},{"petId":2,"quantity":6,"status":"sold"}]',
  )
  await eventually('the last use of the key to be noted', async () => {
    const [row] = await database.query('SELECT last_used_at FROM api_keys')
    return row?.['last_used_at'] ?? undefined
  })
  const warnings = log.filter(({ level }) => Number(level) >= 40)
  t.match(warnings, [{ msg: /^there is no API key, so every request under \/v1 is refused/ }])
  t.equal(warnings.length, 1)
})

t.test("the server's role can do nothing else", async (t) => {
  const { database, server } = await setUp(t)
  await addEntries(database, [['1', 9, 'available']])
  await database.query(
    "INSERT INTO api_keys (name, digest) VALUES ('ops', sha256('a')); CREATE TABLE orders (id bigint)",
  )
  const client = await connect(t, server.urlOf(database.url))
  for (const statement of [
    "INSERT INTO inventory VALUES (2, 1, 'sold')",
    'DELETE FROM inventory',
    'TRUNCATE inventory',
    "UPDATE inventory SET status = 'sold'",
    'UPDATE inventory SET pet_id = 2',
    'DO $$ BEGIN LOCK TABLE inventory IN ACCESS EXCLUSIVE MODE; END $$',
    "INSERT INTO api_keys (name, digest) VALUES ('own', sha256('b'))",
    'DELETE FROM api_keys',
    'TRUNCATE api_keys',
    "UPDATE api_keys SET digest = sha256('b')",
    'UPDATE api_keys SET revoked_at = NULL',
    'UPDATE api_keys SET expires_at = NULL',
    "UPDATE api_keys SET name = 'own'",
    'DELETE FROM pgmigrations',
    "UPDATE pgmigrations SET name = 'none'",
    'SELECT * FROM orders',
    'SELECT rolpassword FROM pg_authid',
    'CREATE TABLE own (id bigint)',
    'CREATE TEMPORARY TABLE own (id bigint)',
    'CREATE FUNCTION own() RETURNS integer LANGUAGE sql AS $$ SELECT 1 $$',
    'CREATE SCHEMA own',
    'CREATE DATABASE own',
    'CREATE ROLE own',
    'ALTER TABLE inventory DROP CONSTRAINT inventory_quantity_check',
    'ALTER TABLE inventory ADD COLUMN own integer',
    'DROP TABLE inventory',
    'CREATE TRIGGER own BEFORE UPDATE ON inventory EXECUTE FUNCTION suppress_redundant_updates_trigger()',
    'CREATE INDEX own ON inventory (quantity)',
    `ALTER ROLE ${server.name} SUPERUSER`,
    `SET ROLE ${new URL(database.url).username}`,
    "COPY inventory TO PROGRAM 'true'",
    "SELECT pg_read_file('postgresql.conf')",
  ]) {
    const outcome = client.query(statement).then(({ command }) => ({ code: `${command} was done` }))
    const { code } = await outcome.catch((error: { code: string }) => error)
    t.equal(code, FORBIDDEN.code, statement)
  }
  // To one who may not pass on what it has, PostgreSQL only gives a warning.
  await client.query('GRANT SELECT ON inventory TO PUBLIC')
  t.strictSame(
    await database.query(
      "SELECT FROM information_schema.role_table_grants WHERE grantee = 'PUBLIC' AND table_schema = 'public'",
    ),
    [],
    'it granted nothing',
  )
})

t.test("the operators' role can run every command but migrations", async (t) => {
  const { database, operator } = await setUp(t)
  const env = { OPERATOR_DATABASE_URL: operator.urlOf(database.url), NODE_ENV: 'production' }
  const load = async (mode: string, input: string): Promise<Outcome> =>
    runCommand(t, ['import', '-', '--unverified', '--allow-removals', '--mode', mode], { env, input })
  t.equal((await load('insert', 'petId,quantity\n1,1\n2,2\n')).stdout, '2 added, 0 changed, 0 unchanged\n')
  t.equal((await load('upsert', 'petId,quantity\n2,3\n3,3\n')).stdout, '1 added, 1 changed, 0 unchanged\n')
  t.equal(
    (await load('replace', 'petId,quantity\n2,3\n')).stdout,
    '0 added, 0 changed, 1 unchanged, 2 removed\n',
  )
  t.equal((await inventory(t, env, 'export')).stdout, 'petId,quantity,status\n2,3,available\n')
  for (const args of [
    ['keys', 'create', '--name', 'ops'],
    ['keys', 'rotate', 'ops'],
    ['keys', 'list'],
    ['keys', 'revoke', 'ops'],
    ['status'],
  ]) {
    const { code, stderr } = await inventory(t, env, ...args)
    t.equal(code, 0, `${args.join(' ')} ${stderr}`)
  }
  const { code, stderr } = await inventory(t, env, 'migrate', 'down', '--yes', '--force')
  t.equal(code, 1)
  t.match(
    stderr,
    `The role ${operator.name} does not own the tables; nothing was changed. Run migrations as their owner; with docker compose, run "docker compose run --rm --no-deps migrate".\n`,
  )
  const client = await connect(t, operator.urlOf(database.url))
  for (const statement of [
    'DROP TABLE inventory',
    'DELETE FROM api_keys',
    "UPDATE api_keys SET name = 'own'",
  ]) {
    await t.rejects(client.query(statement), FORBIDDEN, statement)
  }
})

t.test('a server without its privileges is not ready, and becomes ready when they are granted', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t)
  const { send, log } = await startApp(t, role.urlOf(database.url))
  await until('the log to say so', () =>
    log.some(({ msg }) => /not ready: The database role lacks privileges/.test(String(msg))),
  )
  t.equal((await send('GET', '/v1/inventory')).status, 503)
  await database.query(`GRANT SELECT ON ALL TABLES IN SCHEMA public TO ${role.name}`)
  const answer = await send('GET', '/readyz')
  t.equal(answer.status, 503, 'reading alone is not enough')
  t.match(answer.text, /inventory migrate up --server-role ROLE/)
  const args = ['migrate', 'up', '--server-role', role.name]
  t.equal((await inventory(t, { DATABASE_URL: database.url }, ...args)).code, 0)
  await eventually('the service to be ready', async () => (await send('GET', '/readyz')).status === 200)
  t.equal((await send('GET', '/v1/inventory')).text, '[]')
})

t.test(
  'a role without a privilege on the schema of the tables is told so, until it is granted',
  async (t) => {
    const { database, server, operator } = await setUp(t)
    await database.query('CREATE SCHEMA "my shop"')
    for (const table of ['inventory', 'api_keys', 'pgmigrations'])
      await database.query(`ALTER TABLE ${table} SET SCHEMA "my shop"`)
    const name = new URL(database.url).pathname.slice(1)
    await database.query(`ALTER DATABASE ${name} SET search_path = "my shop", public`)
    const { send, log } = await startApp(t, server.urlOf(database.url))
    const { status, text } = await send('GET', '/readyz')
    t.equal(status, 503)
    t.match(text, /lacks privileges. Run ."inventory migrate up --server-role ROLE/)
    t.match(JSON.stringify(log), 'permission denied for schema my shop')
    const asOperator = { OPERATOR_DATABASE_URL: operator.urlOf(database.url) }
    for (const command of [['status'], ['keys', 'list'], ['export']]) {
      const { code, stderr } = await inventory(t, asOperator, ...command)
      t.equal(code, 1)
      t.match(stderr, 'permission denied for schema my shop')
      t.match(stderr, '"inventory migrate up --operator-role ROLE"')
    }
    const roles = ['--server-role', server.name, '--operator-role', operator.name]
    t.equal((await inventory(t, { DATABASE_URL: database.url }, 'migrate', 'up', ...roles)).code, 0)
    await eventually('the service to be ready', async () => (await send('GET', '/readyz')).status === 200)
    t.equal((await inventory(t, asOperator, 'status')).code, 0)
  },
)

t.test('a role that does not exist is refused before anything is changed', async (t) => {
  const database = await testDatabase(t, { empty: true })
  const { code, stderr } = await inventory(
    t,
    { DATABASE_URL: database.url },
    ...['migrate', 'up', '--server-role', 'No "Such"'],
  )
  t.equal(code, 1)
  t.match(stderr, 'There is no role "No ""Such"""; nothing was changed. Create it first: CREATE ROLE')
  t.strictSame(
    await database.query("SELECT relname FROM pg_class WHERE relname ~ 'inventory|pgmigrations'"),
    [],
  )
})

t.test('grants that PostgreSQL refuses leave nothing changed, and the message says so', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t, { empty: true })
  await database.query(
    "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'ask the security team'; END$$",
  )
  await database.query(
    "CREATE EVENT TRIGGER refuse ON ddl_command_start WHEN TAG IN ('GRANT') EXECUTE FUNCTION refuse()",
  )
  const migrate = (): Promise<Outcome> =>
    inventory(t, { DATABASE_URL: database.url }, 'migrate', 'up', '--server-role', role.name)
  const { code, stdout, stderr } = await migrate()
  t.strictSame(
    [code, stdout, stderr],
    [1, '', 'inventory: No privileges were granted: ask the security team; nothing was changed.\n'],
  )
  t.strictSame(await database.query("SELECT to_regclass('inventory') AS found"), [{ found: null }])

  await database.query('DROP EVENT TRIGGER refuse')
  t.match(await migrate(), {
    code: 0,
    stdout: /^Applied \d{17}_create-inventory\n[\s\S]*\nGranted the role .* what the server needs\.\n$/,
  })
})

t.test('several that migrate and grant at once all succeed', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t, { empty: true })
  const outcomes = await Promise.all(
    Array.from({ length: 3 }, () =>
      inventory(t, { DATABASE_URL: database.url }, 'migrate', 'up', '--server-role', role.name),
    ),
  )
  for (const { code, stderr } of outcomes) t.equal(code, 0, stderr)
  const client = await connect(t, role.urlOf(database.url))
  t.strictSame((await client.query('SELECT * FROM inventory')).rows, [])
})
