import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { Transform } from 'node:stream'
import t, { type Test } from 'tap'
import { knownMigrations } from '../../src/database/migrations.ts'
import { runCommand } from '../support/command.ts'
import { type TestDatabase, testDatabase } from '../support/database.ts'
import { type Outcome, temporaryFolder } from '../support/program.ts'
import { startRelay } from '../support/relay.ts'
import { testRole } from '../support/roles.ts'

/** A migration of a newer version. */
const AFTER = '29990101000000001_add-price'

async function run(t: Test, args: string[], env: Record<string, string>): Promise<Outcome> {
  return runCommand(t, ['migrate', ...args], { env })
}

/** Everything that migrations make, as text: columns, constraints and indexes. */
async function schemaOf(database: TestDatabase): Promise<unknown> {
  return database.query(
    `SELECT table_name, column_name, data_type, is_nullable, NULL AS rule FROM information_schema.columns
     WHERE table_schema = 'public' AND table_name <> 'pgmigrations'
     UNION ALL
     SELECT conrelid::regclass::text, conname, contype::text, NULL, pg_get_constraintdef(oid) FROM pg_constraint
     WHERE connamespace = 'public'::regnamespace AND conrelid <> coalesce(to_regclass('pgmigrations')::oid, 0)
     ORDER BY 1, 2, 3`,
  )
}

t.test('up, down and up again leave the same schema as up', async (t) => {
  const database = await testDatabase(t, { empty: true })
  const env = { DATABASE_URL: database.url }
  const empty = await schemaOf(database)
  t.equal((await run(t, ['up'], env)).code, 0)
  const migrated = await schemaOf(database)
  t.notSame(migrated, empty)
  t.equal((await run(t, ['up'], env)).code, 0, 'a second time there is nothing to do')
  t.strictSame(await schemaOf(database), migrated)
  const names = await database.query('SELECT name FROM pgmigrations')
  t.equal((await run(t, ['down', String(names.length), '--yes'], env)).code, 0)
  t.strictSame(await schemaOf(database), empty)
  t.equal((await run(t, ['up'], env)).code, 0)
  t.strictSame(await schemaOf(database), migrated)
})

t.test('five at once on an empty database all succeed, and the work is done once', async (t) => {
  const database = await testDatabase(t, { empty: true })
  const outcomes = await Promise.all(
    Array.from({ length: 5 }, () => run(t, ['up'], { DATABASE_URL: database.url })),
  )
  t.strictSame(
    outcomes.map(({ code }) => code),
    [0, 0, 0, 0, 0],
  )
  const [row] = await database.query('SELECT count(*) = count(DISTINCT name) AS once FROM pgmigrations')
  t.equal(row?.['once'], 't')
})

t.test('a migration that cannot get its lock soon fails and changes nothing', async (t) => {
  const database = await testDatabase(t)
  const release = await database.hold('SELECT * FROM inventory, api_keys')
  const all = String((await knownMigrations()).length)
  const { code, stderr } = await run(t, ['down', all, '--yes'], { DATABASE_URL: database.url })
  t.equal(code, 1)
  t.match(stderr, /The migration \S+ did not get a lock in time; nothing was changed\. Run it again when /)
  await release()
  t.strictSame(await database.query('SELECT * FROM inventory'), [])
})

t.test('a read-only server is named as the reason, without a stack trace', async (t) => {
  for (const empty of [true, false]) {
    const database = await testDatabase(t, { empty })
    const name = new URL(database.url).pathname.slice(1)
    await database.query(`ALTER DATABASE ${name} SET default_transaction_read_only = on`)
    for (const args of [['up'], ['down', '--yes']]) {
      if (empty && args[0] === 'down') continue
      const { code, stderr } = await run(t, args, { DATABASE_URL: database.url })
      t.equal(code, 1)
      t.match(stderr, /the server is read-only: default_transaction_read_only is on\.\n$/)
      t.notMatch(stderr, /\n {4}at /)
    }
  }
})

t.test('a server that cannot be reached, is lost or does not respond is one message', async (t) => {
  const database = await testDatabase(t)
  const closing = await startRelay(t, { target: () => new URL(database.url), accepts: () => false })
  // The server's first statement never arrives.
  const silent = await startRelay(t, {
    target: () => new URL(database.url),
    towardsDatabase: () =>
      new Transform({
        transform: (bytes: Buffer, _encoding, done) =>
          bytes.includes('pg_is_in_recovery') ? done() : done(null, bytes),
      }),
  })
  for (const [args, url, message] of [
    [['up'], closing.url, /PostgreSQL cannot serve this now: /],
    [['up', '--dry-run'], closing.url, /PostgreSQL cannot serve this now: /],
    [['up'], 'postgres://u@host.invalid/x', /The host of PostgreSQL cannot be found: /],
    [['up'], silent.url, /PostgreSQL cannot serve this now: Query read timeout\.$/],
  ] as const) {
    const { code, stdout, stderr } = await run(t, [...args], { DATABASE_URL: url })
    t.strictSame([code, stdout], [1, ''])
    t.match(stderr.trim(), message)
    t.notMatch(stderr, /\n {4}at /)
  }
})

t.test('the table refuses what the interface has no words for', async (t) => {
  const database = await testDatabase(t)
  for (const values of [
    "1, -1, 'sold'",
    "1, 1, 'eaten'",
    "1, NULL, 'sold'",
    '1, 1, NULL',
    "NULL, 1, 'sold'",
    "1, 2147483648, 'sold'",
  ]) {
    await t.rejects(
      database.query(`INSERT INTO inventory (pet_id, quantity, status) VALUES (${values})`),
      values,
    )
  }
})

t.test('create writes an empty migration named after the present moment', async (t) => {
  const cwd = await temporaryFolder(t)
  const { code, stdout } = await runCommand(t, ['migrate', 'create', 'add-price'], { cwd })
  t.equal(code, 0)
  t.match(stdout, /^migrations[/\\]\d{17}_add-price\.sql\n$/)
  t.match(await readFile(path.join(cwd, stdout.trim()), 'utf8'), /-- Up Migration[\s\S]*-- Down Migration/)
})

t.test('migrate fails with one message, and with another exit code for wrong usage', async (t) => {
  const faults: [args: string[], env: Record<string, string>, code: number, message: RegExp][] = [
    [['up'], {}, 1, /DATABASE_URL must be set/],
    [['up'], { DATABASE_URL: 'nowhere' }, 1, /DATABASE_URL must be an address like/],
    [
      ['up'],
      { DATABASE_URL: 'postgres://u:the-password-in-the-url@127.0.0.1:1/x' },
      1,
      /PostgreSQL cannot be reached at 127\.0\.0\.1:1/,
    ],
    [['up', 'many'], {}, 2, /must be a whole number/],
    [['upp'], {}, 2, /Did you mean up\?/],
    [['create', 'Add Price'], {}, 2, /words of a-z/],
  ]
  for (const [args, env, expected, message] of faults) {
    const { code, stdout, stderr } = await run(t, args, env)
    t.equal(code, expected, args.join(' '))
    t.equal(stdout, '')
    t.match(stderr, message)
    t.notMatch(stderr, /\n\s+at |the-password-in-the-url/, 'no stack trace and no secret')
  }
})

t.test('down says what it rolls back, and takes a confirmation', async (t) => {
  const database = await testDatabase(t)
  const env = { DATABASE_URL: database.url }
  const applied = await database.query('SELECT name FROM pgmigrations ORDER BY name')
  const count = String(applied.length)
  const plan =
    /This rolls back \d{17}_[a-z-]+, .*\d{17}_create-inventory, and deletes the data that they added/
  const refused = await run(t, ['down', count], env)
  t.equal(refused.code, 5)
  t.match(refused.stderr, plan)
  t.match(refused.stderr, /; nothing was changed\. To confirm, add --yes\.\n$/)
  t.match(
    (await run(t, ['down'], env)).stderr,
    `This rolls back ${applied.at(-1)?.['name']}, and deletes `,
    'one, unless told otherwise',
  )

  const production = { ...env, NODE_ENV: 'production' }
  t.match(await run(t, ['down', count, '--yes'], production), {
    code: 5,
    stderr: /NODE_ENV is production.*; nothing was changed\. .* add --force/,
  })
  t.match(await run(t, ['down', count, '--force'], production), { code: 5, stderr: /add --yes/ })

  const terminal = {
    ...env,
    NODE_OPTIONS: '--import=data:text/javascript,process.stdin.isTTY=process.stderr.isTTY=true',
  }
  const answered = async (input: string): Promise<Outcome> =>
    runCommand(t, ['migrate', 'down'], { env: terminal, input })
  // The last one is Ctrl-D.
  for (const input of ['no\n', 'y\n', ''])
    t.match(await answered(input), {
      code: 5,
      stderr: /Continue\? \(yes\/no\)\s+inventory: Not confirmed; nothing was changed\.\n$/,
    })
  t.strictSame(await database.query('SELECT name FROM pgmigrations ORDER BY name'), applied)

  t.match(await answered('Yes\n'), { code: 0, stdout: /^Rolled back \S+\n$/ })
  t.equal((await run(t, ['up'], env)).code, 0)

  const done = await run(t, ['down', count, '--yes', '--force'], production)
  t.equal(done.code, 0, done.stderr)
  t.match(done.stderr, plan)
  t.strictSame(await database.query("SELECT to_regclass('inventory') AS found"), [{ found: null }])
})

t.test(
  'status shows what is applied, pending and unknown, and up refuses a migration out of order',
  async (t) => {
    const database = await testDatabase(t, { empty: true })
    const env = { DATABASE_URL: database.url }
    const states = async (): Promise<[number | null, Record<string, string>]> => {
      const { code, stdout } = await run(t, ['status', '--json'], env)
      const records: { name: string; state: string }[] = JSON.parse(stdout)
      return [code, Object.fromEntries(records.map(({ name, state }) => [name, state]))]
    }
    const known = await knownMigrations()
    const all = (state: string): Record<string, string> =>
      Object.fromEntries(known.map((name) => [name, state]))
    t.strictSame(await states(), [3, all('pending')])
    t.strictSame(await database.query("SELECT to_regclass('pgmigrations') AS found"), [{ found: null }])
    t.equal((await run(t, ['up'], env)).code, 0)
    t.strictSame(await states(), [0, all('applied')])
    t.match(
      (await run(t, ['status'], env)).stdout,
      /^MIGRATION +STATE +APPLIED\n\d{17}_create-inventory +applied +\d{4}-/,
    )

    await database.query(`INSERT INTO pgmigrations (name, run_on) VALUES ('${AFTER}', now())`)
    t.strictSame(
      await states(),
      [0, { ...all('applied'), [AFTER]: 'unknown' }],
      'a newer version is no error',
    )
    t.match(await run(t, ['down', '--yes'], env), {
      code: 1,
      stderr: `This version does not know the migration ${AFTER}. Roll it back with the version that introduced it.`,
    })
    const [first = '', second = ''] = known
    await database.query('DELETE FROM pgmigrations WHERE name = $1', [first])
    t.match(await states(), [3, { [first]: 'pending', [second]: 'applied' }])
    t.match(await run(t, ['up'], env), {
      code: 1,
      stderr: `inventory: Not run migration ${first} is preceding already run migration ${second}; nothing was changed.\n`,
    })
  },
)

t.test(
  'the newest migration is the last by name, whatever the time zone was when they were applied',
  async (t) => {
    const database = await testDatabase(t, { empty: true })
    const env = { DATABASE_URL: database.url }
    const setZone = (zone: string): Promise<unknown> =>
      database.query(`ALTER DATABASE ${new URL(database.url).pathname.slice(1)} SET TimeZone = '${zone}'`)
    const names = async (): Promise<unknown[]> =>
      (await database.query('SELECT name FROM pgmigrations ORDER BY run_on, id')).map(({ name }) => name)
    const known = await knownMigrations()

    await setZone('Pacific/Kiritimati')
    t.equal((await run(t, ['up'], env)).code, 0)
    t.strictSame(
      await database.query(
        "SELECT FROM pgmigrations WHERE abs(extract(epoch FROM now() - run_on AT TIME ZONE 'UTC')) > 600",
      ),
      [],
      'their times are in UTC',
    )
    const { stdout } = await run(t, ['status', '--json'], env)
    const [record]: { appliedAt: string }[] = JSON.parse(stdout)
    t.ok(Math.abs(Date.parse(record?.appliedAt ?? '') - Date.now()) < 600_000)

    // As after a change of the time zone, at the end of daylight saving time, and in a table that was copied in another order.
    for (const disorder of [
      "run_on = run_on + interval '14 hours' WHERE name LIKE '%create-inventory'",
      "run_on = run_on - interval '1 hour' WHERE name LIKE '%add-history'",
      'run_on = now(), id = 100 - id',
    ]) {
      await database.query(`UPDATE pgmigrations SET ${disorder}`)
      t.notSame(await names(), known)
      t.match(await run(t, ['down', '--yes'], env), { code: 0, stdout: `Rolled back ${known.at(-1)}\n` })
      t.strictSame(await names(), known.slice(0, -1))
      t.match(await run(t, ['up'], env), { code: 0, stdout: `Applied ${known.at(-1)}\n` })
      t.strictSame(await names(), known)
    }
  },
)

t.test('--dry-run prints the SQL, which does the same, and runs none of it', async (t) => {
  const [dry, real] = [await testDatabase(t, { empty: true }), await testDatabase(t, { empty: true })]
  const empty = await schemaOf(dry)
  const { code, stdout } = await run(t, ['up', '--dry-run'], { DATABASE_URL: dry.url })
  t.equal(code, 0)
  t.match(
    stdout,
    /^BEGIN;\nSET LOCAL TIME ZONE 'UTC';\n[\s\S]*CREATE TABLE inventory[\s\S]*INSERT INTO "public"."pgmigrations"[\s\S]*COMMIT;\n$/,
  )
  const one = await run(t, ['up', '1', '--dry-run'], { DATABASE_URL: dry.url })
  t.match(one.stdout, /CREATE TABLE inventory/)
  t.notMatch(one.stdout, 'CREATE TABLE api_keys')
  t.strictSame(await schemaOf(dry), empty)
  t.strictSame(await dry.query("SELECT to_regclass('pgmigrations') AS found"), [{ found: null }])
  t.match(await run(t, ['down', '--dry-run'], { DATABASE_URL: dry.url }), {
    code: 0,
    stdout: '-- No migration is applied.\n',
  })

  await run(t, ['up'], { DATABASE_URL: real.url })
  await dry.query(
    'CREATE TABLE pgmigrations (id serial PRIMARY KEY, name varchar(255) NOT NULL, run_on timestamp NOT NULL)',
  )
  await dry.query(stdout)
  t.strictSame(await schemaOf(dry), await schemaOf(real))

  const down = await run(t, ['down', '--dry-run'], { DATABASE_URL: real.url })
  t.equal(down.code, 0)
  t.match(down.stdout, /^BEGIN;\n[\s\S]*DROP[\s\S]*DELETE FROM "public"."pgmigrations"[\s\S]*COMMIT;\n$/)
  const all = await run(t, ['down', String((await knownMigrations()).length), '--dry-run'], {
    DATABASE_URL: real.url,
    NODE_ENV: 'production',
  })
  t.match(all, { code: 0, stdout: /DROP TABLE inventory;/ }, 'as many as are asked for, in production, too')
  t.equal((await run(t, ['status'], { DATABASE_URL: real.url })).code, 0, 'it ran none of it')
  t.match(await run(t, ['up', '--dry-run'], { DATABASE_URL: real.url }), {
    stdout: '-- No migration is pending.\n',
  })
})

t.test('a role that may not create tables is told so', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t, { empty: true })
  t.match(await run(t, ['up'], { DATABASE_URL: role.urlOf(database.url) }), {
    code: 1,
    stdout: '',
    stderr: `inventory: The role ${role.name} may not create tables in the first schema of its search_path; nothing was changed.`,
  })
})
