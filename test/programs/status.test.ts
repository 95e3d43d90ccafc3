import t, { type Test } from 'tap'
import { inventory, succeed } from '../support/command.ts'
import { testDatabase } from '../support/database.ts'
import { startRelay } from '../support/relay.ts'

const readStatus = async (t: Test, url: string) => {
  const { code, stdout } = await inventory(t, url, 'status --json')
  return { code, ...JSON.parse(stdout) }
}

t.test('status shows the server, the schema, the entries and the keys', async (t) => {
  const database = await testDatabase(t, { entries: ['1,9,sold', '2,9,sold', '3,9,available'] })
  for (const change of ['create --name shop', 'create --name billing', 'rotate billing', 'revoke shop'])
    await succeed(t, database.url, `keys ${change}`)
  const { host, port, pathname } = new URL(database.url)
  const address = `${port === '' ? `${host}:5432` : host}${pathname}`
  t.match(await readStatus(t, database.url), {
    code: 0,
    database: { version: /^\d+(\.|beta|rc)\d+$/, address, readOnly: null },
    schema: { expected: /^\d{17}_/, pending: [], unknown: [] },
    entries: { available: 1, pending: 0, sold: 2 },
    keys: { active: 1, ending: 1, expired: 0, revoked: 1 },
    lastBackup: null,
    warnings: [],
  })
  const { code, stdout, stderr } = await inventory(t, database.url, 'status')
  t.strictSame([code, stderr], [0, ''])
  t.match(stdout, /^STATUS\ndatabase\.version +\d/)
  t.match(stdout, /^schema\.pending +-\n.*\nentries\.available +1\n/m)
})

t.test('status shows the last backup and read-only sessions, and warns of disabled triggers', async (t) => {
  const { url, name, query } = await testDatabase(t)
  await succeed(t, url, 'history on')
  await query(
    `COMMENT ON DATABASE "${name}" IS 'Last backup: 2026-11-24T03:00:00Z';
     ALTER TABLE inventory DISABLE TRIGGER ALL;
     ALTER DATABASE ${name} SET default_transaction_read_only = on;
     ALTER DATABASE ${name} SET array_nulls = off`,
  )
  t.match(await readStatus(t, url), {
    code: 0,
    database: { readOnly: 'setting' },
    lastBackup: '2026-11-24T03:00:00.000Z',
    warnings: [/^The trigger \w+ is disabled, .* "ALTER TABLE inventory ENABLE TRIGGER \w+"$/],
  })
})

t.test('a schema behind this version has an exit code of its own; a newer one is no error', async (t) => {
  const database = await testDatabase(t, { empty: true })
  const expected = await readStatus(t, database.url)
  t.match(expected, {
    code: 3,
    entries: null,
    keys: null,
    warnings: [/behind; run "inventory migrate up"/],
  })
  t.match(expected.schema.pending, [/^\d{17}_create-inventory$/])
  await succeed(t, database.url, 'migrate up')
  await database.query("INSERT INTO pgmigrations (name, run_on) VALUES ('29991231000000000_later', now())")
  const ahead = await readStatus(t, database.url)
  t.match(ahead, { code: 0, schema: { pending: [], unknown: ['29991231000000000_later'] } })
})

t.test('a database that cannot be used is reported in one message without its password', async (t) => {
  const database = await testDatabase(t)
  const empty = await testDatabase(t, { empty: true })
  const silent = await startRelay(t, database.url)
  silent.stall()
  const away = 'postgres://u:secret@127.0.0.1:1/x'
  for (const [url, message] of [
    [away, /cannot be reached: connect ECONNREFUSED 127\.0\.0\.1:1\. Check that it is running/],
    [silent.url, /cannot be reached: .*timeout.*\. Check .*, the network, and DATABASE_URL\.\n$/],
    [empty.url, /schema is behind .*: relation "\w+" does not exist\. Run "inventory migrate up"/],
  ] as const) {
    const { code, stdout, stderr } = await inventory(t, url, 'export')
    t.strictSame([code, stdout, stderr.split('\n').length], [1, '', 2])
    t.match(stderr, message)
    t.notMatch(stderr, /\n\s+at |secret/)
  }
})
