import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { startService } from '../support/app.ts'
import { inventory } from '../support/command.ts'
import { findSessions } from '../support/database.ts'
import { isError } from '../support/http.ts'
import { trigger } from '../support/triggers.ts'

/** What a function of a trigger can do wrong that readiness would report for a statement of the service. */
const faults = {
  'a missing table': 'INSERT INTO audit VALUES (1)',
  'a missing column': 'UPDATE inventory SET price = 1',
  'a missing function': 'PERFORM note(1)',
  'a syntax error': "EXECUTE 'no SQL'",
  'a name of a missing table': "PERFORM 'audit'::regclass",
}

t.test("an error in the operator's trigger is a 500, and no reason to migrate", async (t) => {
  const { database, send, update, log } = await startService(t, 2)
  for (const [what, code] of Object.entries(faults)) {
    await database.query('DROP FUNCTION IF EXISTS act CASCADE')
    await database.query(trigger(`IF NEW.pet_id = 1 THEN ${code}; END IF`))
    const lines = log.length
    const answers = await Promise.all([1, 2, 2, 1].map((pet) => update(pet, 5)))
    for (const [index, status] of [500, 200, 200, 500].entries())
      t.equal(answers[index]?.status, status, what)
    t.ok(log.slice(lines).some((line) => JSON.stringify(line).includes('PL/pgSQL function act()')))
    t.equal((await send('GET', '/readyz')).status, 200, what)

    const input = 'petId,quantity\n1,1\n'
    const { code: exit, stderr } = await inventory(t, database.url, 'import - --rows 1', { input })
    t.equal(exit, 1, what)
    t.match(stderr, /A function or trigger in the database failed: .* \(PL\/pgSQL function act\(\)/)
    t.notMatch(stderr, /migrate|at .*\.js/, what)
  }
})

/**
 * What a trigger can raise by the status of its update, whatever the service's own statement would mean by it; and the tables on other
 * servers that a trigger writes to.
 */
const raised = {
  400: 'P0001 42P01 28000 22P02 P0004 0A000',
  503:
    '08006 08P01 25006 25P04 40001 40003 40P01 53100 53300 54000 57014 57P01 57P03 58030 XX000 XX002 ' +
    'audit_down audit_standby',
}

t.test('an ERROR of a trigger concerns its own update, whatever its SQLSTATE', async (t) => {
  const { database, updateAll, log } = await startService(t, 30)
  const { username, password, port, pathname } = new URL(database.url)
  const mapping = `USER MAPPING FOR CURRENT_USER SERVER`
  const login = `OPTIONS (user '${decodeURIComponent(username)}', password '${decodeURIComponent(password)}')`
  await database.query(`CREATE EXTENSION postgres_fdw; CREATE TABLE audit (pet_id bigint);
    CREATE SERVER down FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '127.0.0.1', port '1');
    CREATE SERVER standby FOREIGN DATA WRAPPER postgres_fdw OPTIONS (
      host '127.0.0.1', port '${port}', dbname '${pathname.slice(1)}', options '-c default_transaction_read_only=on');
    CREATE ${mapping} down ${login}; CREATE ${mapping} standby ${login};
    CREATE FOREIGN TABLE audit_down (pet_id bigint) SERVER down OPTIONS (table_name 'audit');
    CREATE FOREIGN TABLE audit_standby (pet_id bigint) SERVER standby OPTIONS (table_name 'audit');
    CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF TG_ARGV[0] LIKE 'audit%' THEN EXECUTE 'INSERT INTO ' || TG_ARGV[0] || ' VALUES (1)';
      ELSE RAISE 'unsupported startup parameter' USING ERRCODE = TG_ARGV[0]; END IF; RETURN NEW; END $$`)
  const sessions = async () =>
    (await findSessions(database, "application_name LIKE '%server'")).map(({ pid }) => pid)
  await updateAll(6, 1)
  const before = await sessions()
  const rows = Object.entries(raised).flatMap(([status, causes]) =>
    causes.split(' ').map((cause) => [cause, Number(status)] as const),
  )
  for (const [argument, status] of rows) {
    await database.query(`CREATE OR REPLACE TRIGGER audit BEFORE UPDATE ON inventory FOR EACH ROW WHEN (NEW.pet_id = 15)
      EXECUTE FUNCTION audit('${argument}')`)
    for (const [index, answer] of (await updateAll(30, 5)).entries()) {
      if (index !== 14) t.equal(answer.status, 200, argument)
      else isError(t, answer, status, status === 400 ? 'invalid_request' : 'nothing_changed', argument)
    }
  }
  const after = await sessions()
  const closed = before.filter((pid) => !after.includes(pid))
  t.ok(closed.length <= 1, 'no connection was replaced, but the one of the probe after five seconds')
  t.notMatch(JSON.stringify(log), /renewed|lost/)
})

const CONNECTIONS = 4

/** Triggers whose sessions remember something, and statements after which that is wrong. */
const outdated = {
  'the plan of a function': [
    `DECLARE most record; BEGIN SELECT quantity INTO most FROM limits; IF NEW.quantity > most.quantity THEN RETURN NULL; END IF; END`,
    'ALTER TABLE limits ALTER quantity TYPE bigint',
  ],
  'the type of a column': ['NULL', 'ALTER TABLE inventory ALTER status TYPE varchar'],
  'a setting': ["PERFORM set_config('search_path', 'pg_temp', false)", 'DROP TRIGGER act ON inventory'],
} as const

t.test('a session that remembers what is outdated fails once, also beside other errors', async (t) => {
  const env = { DATABASE_POOL_SIZE: String(CONNECTIONS + 1) }
  const { database, update, updateAll } = await startService(t, 20, { env })
  await database.query(`CREATE TABLE limits AS SELECT 99 AS quantity; CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM missing(); END $$; CREATE TRIGGER fail BEFORE UPDATE ON inventory FOR EACH ROW WHEN (NEW.pet_id = 20)
    EXECUTE FUNCTION fail()`)
  await updateAll(19, 1)
  for (const [what, [code, change]] of Object.entries(outdated)) {
    await database.query(`DROP FUNCTION IF EXISTS act CASCADE; ${trigger(code)}`)
    await Promise.all([updateAll(19, 2), update(20, 1)])
    // Younger connections stay.
    await setTimeout(1100)
    await database.query(change)
    const statuses: number[] = []
    for (let round = 0; round < 20; round++) {
      const [answers, failing] = await Promise.all([updateAll(19, round), update(20, 1)])
      t.not(failing.status, 200)
      statuses.push(...answers.map(({ status }) => status))
    }
    const failures = statuses.filter((status) => status !== 200)
    t.ok(failures.length <= CONNECTIONS, `${what}: of ${statuses.length} failed ${failures}`)
  }
})
