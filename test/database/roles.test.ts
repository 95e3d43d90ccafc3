import { readFile } from 'node:fs/promises'
import t, { type Test } from 'tap'
import { requestLimits } from '../../src/database/time-limits.ts'
import { startApp } from '../support/app.ts'
import { inventory, runCommand, succeed } from '../support/command.ts'
import { addKey, addMany, testDatabase, testRole, waitForLocks } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { onServer } from '../support/on-server.ts'
import { startRelay } from '../support/relay.ts'

/** The statements that create the roles. */
const rolesSql = await readFile('ops/roles.sql', 'utf8')

/** A database with both roles, made by the statements of the documentation and the command that it names. */
const [server, operator] = [await testRole(t), await testRole(t)]
const database = await testDatabase(t)
await database.query(
  rolesSql
    .replaceAll(/^CREATE ROLE.*$/gm, '')
    .replaceAll('inventory_server', server.name)
    .replaceAll('inventory_operator', operator.name)
    .replaceAll('DATABASE inventory', `DATABASE ${database.name}`),
)
const grant = () =>
  succeed(t, database.url, `migrate up --server-role ${server.name} --operator-role ${operator.name}`)
t.match(await grant(), `Granted the role "${server.name}" what `)

const migrateUp = (t: Test, url: string, serverRole: string) =>
  inventory(t, url, ['migrate', 'up', '--server-role', serverRole])

/**
 * Lists what the role of the session may do, from the catalogs. Leaves out what PostgreSQL grants to everyone without effect on
 * others: reading its catalogs, and calling its functions but those for large objects.
 */
const REACHABLE = `
  WITH relations AS (
    SELECT oid, oid::regclass AS name, relkind, relnamespace::regnamespace::text ~ '^(pg_|information_schema)' AS "isSystem"
    FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
  ), kinds AS (
    SELECT unnest(string_to_array('SELECT INSERT UPDATE DELETE TRUNCATE REFERENCES TRIGGER'
      || CASE WHEN current_setting('server_version_num')::integer >= 170000 THEN ' MAINTAIN' ELSE '' END, ' ')) AS kind
  )
  SELECT format('%s on %s', kind, name) AS reachable FROM relations, kinds
  WHERE relkind <> 'S' AND has_table_privilege(oid, kind) AND NOT ("isSystem" AND kind = 'SELECT')
  UNION ALL
  SELECT format('%s (%s) on %s', kind, attname, name)
  FROM relations JOIN pg_attribute ON attrelid = oid AND NOT attisdropped, unnest('{SELECT,INSERT,UPDATE,REFERENCES}'::text[]) AS kind
  WHERE relkind <> 'S' AND has_column_privilege(oid, attnum, kind) AND NOT has_table_privilege(oid, kind)
    AND NOT ("isSystem" AND kind = 'SELECT')
  UNION ALL
  SELECT format('%s on sequence %s', kind, name) FROM relations, unnest('{USAGE,SELECT,UPDATE}'::text[]) AS kind
  WHERE relkind = 'S' AND has_sequence_privilege(oid, kind)
  UNION ALL
  SELECT format('%s on schema %s', kind, nspname) FROM pg_namespace, unnest('{CREATE,USAGE}'::text[]) AS kind
  WHERE has_schema_privilege(oid, kind) AND NOT (nspname IN ('pg_catalog', 'information_schema') AND kind = 'USAGE')
  UNION ALL
  SELECT format('EXECUTE on %s', oid::regprocedure) FROM pg_proc
  WHERE has_function_privilege(oid, 'EXECUTE')
    AND (pronamespace::regnamespace::text NOT IN ('pg_catalog', 'information_schema') OR prosrc ~ '^be_lo')
  UNION ALL
  SELECT format('%s on the database', kind) FROM unnest('{CREATE,CONNECT,TEMPORARY}'::text[]) AS kind
  WHERE has_database_privilege(current_database(), kind)
  UNION ALL
  SELECT format('CREATE in tablespace %s', spcname) FROM pg_tablespace WHERE has_tablespace_privilege(oid, 'CREATE')
  UNION ALL
  SELECT format('member of %s', rolname) FROM pg_roles WHERE pg_has_role(oid, 'MEMBER') AND rolname <> current_user
  UNION ALL
  SELECT 'an attribute' FROM pg_roles
  WHERE rolname = current_user AND (rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication OR rolbypassrls)
  UNION ALL
  SELECT format('owner of a row of %s', classid::regclass) FROM pg_shdepend WHERE refobjid = current_user::regrole AND deptype = 'o'
  UNION ALL
  SELECT 'a large object' FROM pg_largeobject_metadata`

const reachable = async (url: string) =>
  (await onServer(url, REACHABLE)).map((row) => row['reachable']).sort()

t.test("the catalogs show that the server's role can do nothing else", async (t) => {
  await database.query('CREATE TABLE orders (id bigserial)')
  t.strictSame(await reachable(server.toUrl(database.url)), [
    'CONNECT on the database',
    'SELECT on api_keys',
    'SELECT on inventory',
    'SELECT on pgmigrations',
    'UPDATE (quantity) on inventory',
    // SET in its own session.
    'UPDATE on pg_settings',
    'USAGE on schema public',
  ])
  for (const statement of ["SELECT lo_from_bytea(0, 'a')", 'SELECT FROM api_keys FOR SHARE'])
    await t.rejects(onServer(server.toUrl(database.url), statement), { code: '42501' }, statement)

  await database.query(`REVOKE SELECT ON inventory FROM ${server.name};
    GRANT SELECT (pet_id, quantity, status) ON inventory TO ${server.name}`)
  const { send } = await startApp(t, server.toUrl(database.url))
  const text = /The database role lacks a privilege: permission denied for table inventory\. Run /
  t.match(await send('GET', '/readyz'), { status: 503, text }, 'columns are not enough')
  await grant()
})

t.test('readiness plans every statement of requests', async (t) => {
  await addMany(database, 3)
  const key = await addKey(database, 'stored')
  const planned = new Set<string>()
  const ran = new Set<string>()
  const relay = await startRelay(t, server.toUrl(database.url), {
    towardsDatabase(bytes) {
      // A Query, or a Parse with a name first (PostgreSQL manual, section 54.7).
      const [, text] = /^(?:Q.{4}|P.{4}[^\0]*\0)([^\0]+)\0/s.exec(bytes.toString('latin1')) ?? []
      for (const part of text?.split(';\n') ?? []) {
        const [, explained, statement = ''] = /^(EXPLAIN )?(.*)$/s.exec(part) ?? []
        ;(explained ? planned : ran).add(statement.replaceAll(/\$\d+/g, 'NULL'))
      }
      return bytes
    },
  })
  const { send, update } = await startApp(t, relay.url)
  ran.clear()
  const list = () => send('GET', '/v1/inventory', { headers: { authorization: `Bearer ${key}` } })
  t.equal((await list()).status, 200)
  const updates = [update(1, 5), update(2, 5, { 'if-match': '"4-sold"' }), update(3, 5), update(4, 5)]
  t.match(await Promise.all(updates), [{ status: 200 }, { status: 412 }, { status: 200 }, { status: 404 }])
  t.equal((await list()).status, 200)
  await eventually('the state of the table to be read again', async () => {
    await update(1, 5)
    return [...ran].some((text) => text.includes('namesCallers'))
  })
  // What a new connection asks its server.
  const unplanned = [...ran].filter((text) => !planned.has(text) && !text.includes('inventory.session'))
  t.strictSame(unplanned, [])
  t.ok(ran.size > 6)
})

t.test("the operators' role can run every command but migrations, and can do nothing else", async (t) => {
  const env = { OPERATOR_DATABASE_URL: operator.toUrl(database.url), NODE_ENV: 'production' }
  const keys = ['create --name ops', 'rotate ops', 'list', 'revoke ops'].map((words) => `keys ${words}`)
  const replace = 'import - --rows 1 --allow-removals --mode replace'
  for (const command of [...keys, replace, 'export', 'status']) {
    const input = 'petId,quantity\n1,1\n'
    t.match(await runCommand(t, command, { env, input }), { code: 0 }, command)
  }
  t.match(await runCommand(t, 'migrate down --yes', { env }), {
    code: 1,
    stderr: /: must be owner of .*; nothing was changed\. Run this as the owner of the tables\.\n$/,
  })
  t.strictSame(await reachable(operator.toUrl(database.url)), [
    'CONNECT on the database',
    'DELETE on inventory',
    'INSERT on api_keys',
    'INSERT on inventory',
    'SELECT on api_keys',
    'SELECT on inventory',
    'SELECT on inventory_history',
    'SELECT on pgmigrations',
    'TEMPORARY on the database',
    'UPDATE (revoked_at) on api_keys',
    'UPDATE on inventory',
    'UPDATE on pg_settings',
    'USAGE on schema public',
  ])
})

t.test('docker compose does to the roles what ops/roles.sql does', async (t) => {
  const compose = (await readFile('docker-compose.yml', 'utf8')).replaceAll(/\s+/g, ' ')
  const statements = rolesSql.split(';\n').filter((text) => /^(REVOKE|ALTER)/.test(text))
  for (const statement of statements) t.match(compose, statement.replaceAll(/\s+/g, ' '))
})

t.test("the time limits of the server's role are those of requests", async (t) => {
  const lock = `lock_timeout = '${requestLimits.lock}ms'`
  const statement = `statement_timeout = '${requestLimits.statement / 1000}s'`
  const idle = `idle_in_transaction_session_timeout = '${requestLimits.statement / 1000}s'`
  for (const limit of [lock, statement, idle]) t.match(rolesSql, `inventory_server SET ${limit};`)
  t.match(await readFile('docs/limits.md', 'utf8'), `inventory_server SET ${lock};`)
})

t.test('a role without a privilege on the schema is told so, until it is granted', async (t) => {
  await database.query('CREATE SCHEMA "my shop"')
  for (const table of ['inventory', 'api_keys', 'pgmigrations', 'inventory_history'])
    await database.query(`ALTER TABLE ${table} SET SCHEMA "my shop"`)
  await database.query(`ALTER DATABASE ${database.name} SET search_path = "my shop", public`)
  const { send } = await startApp(t, server.toUrl(database.url))
  const text = /Run ."inventory migrate up.* --server-role ROLE/
  t.match(await send('GET', '/readyz'), { status: 503, text })
  const env = { OPERATOR_DATABASE_URL: operator.toUrl(database.url) }
  const stderr = /"inventory migrate up.* --operator-role ROLE/
  t.match(await runCommand(t, 'export', { env }), { code: 1, stderr })
  await grant()
  await eventually('the service to be ready', async () => (await send('GET', '/readyz')).status === 200)
  t.equal((await runCommand(t, 'status', { env })).code, 0)
})

t.test('after a refused grant the migrations remain, and the next run grants', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t, { empty: true })
  const up = (name: string) => migrateUp(t, database.url, name)
  await database.query(`CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS
    $$BEGIN RAISE EXCEPTION 'ask the security team'; END$$;
    CREATE EVENT TRIGGER refuse ON ddl_command_start WHEN TAG IN ('GRANT') EXECUTE FUNCTION refuse()`)
  const unchanged = 'no privilege was changed, and migrations that were applied remain.\n'
  t.match(await up(role.name), {
    code: 1,
    stdout: /^Applied \d{17}_create-inventory\n(Applied \S+\n)+$/,
    stderr: `inventory: The privileges cannot be granted: ask the security team; ${unchanged}`,
  })
  await database.query('DROP EVENT TRIGGER refuse')
  const stderr = `role "No "Such"" does not exist; ${unchanged}`
  t.match(await up('No "Such"'), { code: 1, stdout: 'No migration is pending.\n', stderr })
  const stdout = /^No migration is pending\.\nGranted the role .* what the server needs\.\n$/
  t.match(await up(role.name), { code: 0, stdout })
  t.strictSame(await onServer(role.toUrl(database.url), 'TABLE inventory'), [])
})

t.test('an owner of the tables who may not grant access to their database says so', async (t) => {
  await database.query(`CREATE SCHEMA shop AUTHORIZATION ${operator.name};
    ALTER ROLE ${operator.name} IN DATABASE ${database.name} SET search_path = shop`)
  const up = () => migrateUp(t, operator.toUrl(database.url), server.name)
  t.match(await up(), { code: 0 }, 'the role may connect already')
  await database.query(`REVOKE CONNECT ON DATABASE ${database.name} FROM ${server.name}`)
  t.match(await up(), { code: 1, stderr: /CONNECT on the database or .*; no privilege was changed/ })
})

t.test('of several runs on an empty database, the first migrates, and all grant', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t, { empty: true })
  // All of them wait for this one, so that they overlap.
  const release = await database.hold('CREATE TABLE pgmigrations ()')
  const runs = Array.from({ length: 3 }, () => migrateUp(t, database.url, role.name))
  await waitForLocks(database, runs.length)
  await release()
  const outcomes = await Promise.all(runs)
  for (const outcome of outcomes)
    t.match(outcome, { code: 0, stdout: /\nGranted the role .* what the server needs\.\n$/ })
  t.equal(outcomes.filter(({ stdout }) => stdout.startsWith('No migration is pending.\n')).length, 2)
})
