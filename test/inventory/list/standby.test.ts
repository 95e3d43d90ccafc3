import { execFile } from 'node:child_process'
import { rm } from 'node:fs/promises'
import { promisify } from 'node:util'
import pg from 'pg'
import t, { type Test } from 'tap'
import { migrate } from '../../../src/database/migrations/migrate.ts'
import { standbyLimits } from '../../../src/database/pool.ts'
import type { ServiceTimings } from '../../../src/service.ts'
import { startApp, type TestApp } from '../../support/app.ts'
import { eventually, until } from '../../support/eventually.ts'
import { json } from '../../support/http.ts'
import { freePort } from '../../support/other-program.ts'
import { startOwnPair } from '../../support/own-pair.ts'
import { startProgram } from '../../support/program.ts'
import { startRelay } from '../../support/relay.ts'
import { setSynchronousStandby } from '../../support/synchronous-standby.ts'

const { primary, standby } = await startOwnPair(t, { settings: { wal_level: 'logical' } })
await primary.query("INSERT INTO inventory SELECT n, 0, 'available' FROM generate_series(1, 100) n")

/** The messages about the standby so far. */
function messages({ log }: TestApp): string[] {
  return log.flatMap(({ msg }) => (typeof msg === 'string' && /^lists are read from/.test(msg) ? [msg] : []))
}

async function nextMessage(app: TestApp, pattern: RegExp, seen = 0): Promise<void> {
  await eventually(`a message like ${pattern}`, async () =>
    messages(app)
      .slice(seen)
      .some((message) => pattern.test(message))
      ? true
      : undefined,
  )
}

const start = (t: Test, readUrl: string, timings: Partial<ServiceTimings> = {}): Promise<TestApp> =>
  startApp(t, primary.url, { env: { READ_DATABASE_URL: readUrl }, timings })

async function update({ send }: TestApp, quantity: number): Promise<void> {
  const { status } = await send('PATCH', '/v1/inventory/1', json({ quantity }))
  if (status !== 200) throw new Error(`The update is a ${status}`)
}

async function listed({ send }: TestApp): Promise<number> {
  return JSON.parse((await send('GET', '/v1/inventory')).text)[0].quantity
}

/** How often each of the servers has read the table from end to end, or by its key. */
async function scans({ query }: typeof standby): Promise<number> {
  const [row] = await query(
    "SELECT seq_scan + idx_scan AS scans FROM pg_stat_user_tables WHERE relname = 'inventory'",
  )
  return Number(row?.['scans'])
}

/** What `inventory status` says of the standby. */
async function statusOf(t: Test, readUrl: string, ...args: string[]): Promise<string> {
  const env = { DATABASE_URL: primary.url, READ_DATABASE_URL: readUrl }
  return (await (await startProgram(t, 'cli', { args: ['status', ...args], env })).ended).stdout
}

t.test('lists are read from a standby, whole and by their changes', async (t) => {
  const app = await start(t, standby.url)
  await nextMessage(app, /^lists are read from the standby$/)
  const before = await scans(standby)
  for (let quantity = 1; quantity <= 10; quantity++) {
    await update(app, quantity)
    t.equal(await listed(app), quantity)
  }
  await primary.query('DELETE FROM inventory WHERE pet_id = 100')
  t.equal(JSON.parse((await app.send('GET', '/v1/inventory')).text).length, 99)
  await eventually('the statistics of the standby', async () =>
    (await scans(standby)) > before + 10 ? true : undefined,
  )
  t.equal(messages(app).length, 1)
  t.match(
    await statusOf(t, standby.url),
    /^Standby {6}127\.0\.0\.1:\d+ can serve lists, [\d,]+ bytes of WAL behind$/m,
  )
  t.match(JSON.parse(await statusOf(t, standby.url, '--json')), {
    standby: { problem: null, reason: null, behindBytes: Number },
  })
})

t.test('status says that it is connected to a standby, which cannot check another one', async (t) => {
  t.notMatch(await statusOf(t, standby.url), /^Database .*read-only/m)
  const run = async (...args: string[]) => {
    const env = { DATABASE_URL: standby.url, READ_DATABASE_URL: standby.url }
    return (await startProgram(t, 'cli', { args: ['status', ...args], env })).ended
  }
  const { code, stdout } = await run()
  t.equal(code, 0)
  t.match(stdout, /^Database .*, a standby: it is read-only, and may be behind the primary$/m)
  t.match(
    stdout,
    /^Standby {6}127\.0\.0\.1:\d+ cannot be checked: the command line is connected to a standby, .*$/m,
  )
  t.match(JSON.parse((await run('--json')).stdout), {
    database: { readOnly: 'standby' },
    standby: { problem: 'unverified', behindBytes: null },
  })
})

t.test('a standby that does not replay is not read, until it does', async (t) => {
  let isStalled = false
  const relay = await startRelay({
    target: () => new URL(standby.url),
    onConnection: (...sockets) => {
      if (isStalled) for (const socket of sockets) socket.unpipe()
    },
  })
  t.teardown(() => {
    relay.close()
    relay.cut()
  })
  const app = await start(t, relay.url, { standby: { ...standbyLimits, connect: 60_000 } })
  await nextMessage(app, /^lists are read from the standby$/)
  await update(app, 20)
  t.equal(await listed(app), 20)
  await standby.query('SELECT pg_wal_replay_pause()')
  t.teardown(() => standby.query('SELECT pg_wal_replay_resume()').catch(() => []))
  // Whatever uses the standby once it is given up waits for a new connection.
  isStalled = true
  await update(app, 21)
  t.equal(await listed(app), 21)
  t.match(messages(app).at(-1), /the standby is not used: it does not replay within 2 seconds/)
  const seen = messages(app).length
  await update(app, 22)
  t.equal(await listed(app), 22)
  t.equal(messages(app).length, seen, 'it is not waited for again')
  await standby.query('SELECT pg_wal_replay_resume()')
  isStalled = false
  relay.cut()
  await nextMessage(app, /^lists are read from the standby$/, seen)
  await update(app, 23)
  t.equal(await listed(app), 23)
})

/** Resolves when a check of the standby that begins after this call has ended. */
async function nextCheck(): Promise<void> {
  // Each check begins with this statement, and the next one begins after its end.
  const starts = new Set<unknown>()
  await eventually('two checks', async () => {
    const rows = await primary.query(
      `SELECT query_start FROM pg_stat_activity
       WHERE usename = 'service' AND query LIKE '%pg_current_wal_insert_lsn%'`,
    )
    for (const { query_start: start } of rows) starts.add(start)
    return starts.size > 2 ? true : undefined
  })
}

t.test('a list that takes long to arrive from the standby comes from there', async (t) => {
  await primary.query("INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(101, 50000) n")
  t.teardown(() => primary.query('DELETE FROM inventory WHERE pet_id > 100'))
  let release: (() => void) | undefined
  const relay = await startRelay({
    target: () => new URL(standby.url),
    onConnection(near, far) {
      let received = 0
      far.on('data', ({ length }) => {
        received += length
        // Only the entries of a list are so long.
        if (received < 200_000 || release !== undefined) return
        far.unpipe(near)
        far.pause()
        release = () => far.pipe(near)
      })
    },
  })
  t.teardown(() => {
    relay.close()
    relay.cut()
  })
  const app = await start(t, relay.url, { standby: { ...standbyLimits, answer: 60_000 } })
  await nextMessage(app, /^lists are read from the standby$/)
  const list = app.send('GET', '/v1/inventory')
  await until('the entries to arrive', () => release !== undefined)
  await nextCheck()
  release?.()
  const [stored] = await primary.query('SELECT count(*) FROM inventory')
  t.equal(JSON.parse((await list).text).length, Number(stored?.['count']))
  t.strictSame(messages(app), ['lists are read from the standby'])
})

t.test('a commit that the primary does not show yet is in no list', async (t) => {
  const app = await start(t, standby.url)
  await nextMessage(app, /^lists are read from the standby$/)
  await update(app, 25)
  t.equal(await listed(app), 25)
  // Commits wait for a standby that does not exist, and are on the one that does.
  await setSynchronousStandby(primary, 'nobody')
  t.teardown(() => setSynchronousStandby(primary, ''))
  const waiting = app.send('PATCH', '/v1/inventory/1', json({ quantity: 26 }))
  await eventually('the update on the standby', async () =>
    (await standby.query('SELECT FROM inventory WHERE pet_id = 1 AND quantity = 26')).length > 0
      ? true
      : undefined,
  )
  t.equal((await primary.query('SELECT quantity FROM inventory WHERE pet_id = 1'))[0]?.['quantity'], '25')
  // A commit that does not wait, so that the cached list is not current.
  await primary.query('SET synchronous_commit = local; UPDATE inventory SET quantity = 1 WHERE pet_id = 2')
  t.equal(await listed(app), 25)
  t.match(messages(app).at(-1), /not used: it shows commits that the primary does not show yet/)
  await setSynchronousStandby(primary, '')
  t.ok([200, 503].includes((await waiting).status))
  t.equal(await listed(app), 26)
})

/** Changes a setting of the primary until the test ends. */
async function set(t: Test, name: string, value: string): Promise<void> {
  const reload = async (command: string): Promise<void> => {
    await primary.query(`ALTER SYSTEM ${command}`)
    await primary.query('SELECT pg_reload_conf()')
  }
  t.teardown(() => reload(`RESET ${name}`))
  await reload(`SET ${name} = '${value}'`)
  await eventually(`${name} to be ${value}`, async () =>
    (await primary.query(`SHOW ${name}`))[0]?.[name] === value ? true : undefined,
  )
}

/** Has commits that do not wait for the disk reach it late. */
const flushLate = (t: Test): Promise<void> => set(t, 'wal_writer_delay', '10s')

t.test('what a subscription has changed is in all lists once it is in one', async (t) => {
  await flushLate(t)
  await primary.query('CREATE DATABASE publisher')
  const url = new URL(primary.superuserUrl)
  url.pathname = '/publisher'
  const publisher = new pg.Client({ connectionString: url.href })
  await publisher.connect()
  await publisher.query(
    `CREATE TABLE inventory (pet_id bigint PRIMARY KEY, quantity integer, status text);
     INSERT INTO inventory VALUES (1, 0, 'available');
     CREATE PUBLICATION stock FOR TABLE inventory`,
  )
  await publisher.query("SELECT pg_create_logical_replication_slot('stock', 'pgoutput')")
  await primary.query(
    `CREATE SUBSCRIPTION stock CONNECTION '${url.href}' PUBLICATION stock WITH (create_slot = false, copy_data = false)`,
  )
  t.teardown(async () => {
    await primary.query('ALTER SUBSCRIPTION stock DISABLE')
    await primary.query('ALTER SUBSCRIPTION stock SET (slot_name = NONE)')
    await primary.query('DROP SUBSCRIPTION stock')
    await publisher.end()
  })
  const fromPrimary = await startApp(t, primary.url)
  const fromStandby = await start(t, standby.url)
  await nextMessage(fromStandby, /^lists are read from the standby$/)
  for (let quantity = 101; quantity <= 103; quantity++) {
    await publisher.query('UPDATE inventory SET quantity = $1', [quantity])
    await eventually('the change', async () => ((await listed(fromPrimary)) === quantity ? true : undefined))
    t.equal(await listed(fromStandby), quantity)
  }
})

t.test('what a role has changed is in all lists, if only the service waits for the disk', async (t) => {
  await flushLate(t)
  await set(t, 'synchronous_commit', 'off')
  t.teardown(() => primary.query('ALTER ROLE service RESET synchronous_commit'))
  await primary.query('ALTER ROLE service SET synchronous_commit = on')
  const fromPrimary = await startApp(t, primary.url)
  const fromStandby = await start(t, standby.url)
  await nextMessage(fromStandby, /^lists are read from the standby$/)
  for (let quantity = 111; quantity <= 113; quantity++) {
    await primary.query(`UPDATE inventory SET quantity = ${quantity} WHERE pet_id = 1`)
    t.equal(await listed(fromPrimary), quantity)
    t.equal(await listed(fromStandby), quantity)
  }
})

t.test('a commit that does not wait for the disk is in lists once it is there', async (t) => {
  await flushLate(t)
  await set(t, 'autovacuum', 'off')
  const app = await start(t, standby.url)
  await nextMessage(app, /^lists are read from the standby$/)
  await update(app, 115)
  t.equal(await listed(app), 115)
  await primary.query('SET synchronous_commit = off; UPDATE inventory SET quantity = 116 WHERE pet_id = 1')
  t.ok([115, 116].includes(await listed(app)))
  // Without another commit, which would have the next list read anew.
  await primary.query('CHECKPOINT')
  await eventually('the commit in a list', async () => ((await listed(app)) === 116 ? true : undefined))
})

/** Writes WAL records until one ends with its page. */
async function fillPage(): Promise<void> {
  const inserted = async (): Promise<number> => {
    const [row] = await primary.query(
      "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') AS inserted",
    )
    return Number(row?.['inserted'])
  }
  const write = async (length: number): Promise<unknown> =>
    primary.query(`SELECT pg_logical_emit_message(false, '', repeat('x', ${length}))`)
  await eventually('a record that ends with its page', async () => {
    const before = await inserted()
    await write(1000)
    const overhead = (await inserted()) - before - 1000
    const left = 8192 - ((await inserted()) % 8192)
    if (left > overhead + 300 && left < 7000) await write(left - overhead)
    return (await inserted()) % 8192 === 24 ? true : undefined
  })
}

for (const [end, reach] of [
  ['a file', () => primary.query('SELECT pg_switch_wal()')],
  ['a page', fillPage],
] as const) {
  t.test(`a standby that has replayed WAL to the end of ${end} is not waited for`, async (t) => {
    await set(t, 'autovacuum', 'off')
    await set(t, 'synchronous_commit', 'off')
    const app = await start(t, standby.url)
    await nextMessage(app, /^lists are read from the standby$/)
    await update(app, 118)
    t.equal(await listed(app), 118)
    await update(app, 119)
    await reach()
    t.equal(await listed(app), 119)
    t.strictSame(messages(app), ['lists are read from the standby'])
  })
}

t.test('a commit that a crash has undone is in no list, also if the standby is read since', async (t) => {
  await flushLate(t)
  const app = await start(t, standby.url)
  await nextMessage(app, /^lists are read from the standby$/)
  await update(app, 120)
  t.equal(await listed(app), 120)
  await standby.query('SELECT pg_wal_replay_pause()')
  t.teardown(() => standby.query('SELECT pg_wal_replay_resume()').catch(() => []))
  await update(app, 121)
  t.equal(await listed(app), 121)
  const change = (petId: number): Promise<unknown> =>
    primary.query(`SET synchronous_commit = off; UPDATE inventory SET quantity = 122 WHERE pet_id = ${petId}`)
  await change(1)
  t.equal(await listed(app), 122, 'read from the primary')
  const seen = messages(app).length
  await standby.query('SELECT pg_wal_replay_resume()')
  await nextMessage(app, /^lists are read from the standby$/, seen)
  // So that the next list is another one than that from the primary.
  await change(2)
  t.equal(await listed(app), 122)
  await crashPrimary()
  const stored = Number(
    (await primary.query('SELECT quantity FROM inventory WHERE pet_id = 1'))[0]?.['quantity'],
  )
  await eventually('a list', async () =>
    (await app.send('GET', '/v1/inventory')).status === 200 ? true : undefined,
  )
  t.equal(await listed(app), stored)
})

/** Kills a process of the primary, upon which PostgreSQL ends all of them and restarts. Resolves when it has. */
async function crashPrimary(): Promise<void> {
  const writer = async (): Promise<string | null | undefined> => {
    const client = new pg.Client({
      connectionString: primary.superuserUrl,
      types: { getTypeParser: () => String },
    })
    client.on('error', () => {})
    await client.connect()
    try {
      const { rows } = await client.query("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")
      return rows[0]?.pid
    } finally {
      await client.end()
    }
  }
  const before = await writer()
  process.kill(Number(before), 'SIGKILL')
  await eventually('the primary to restart', async () => {
    const now = await writer().catch(() => undefined)
    return now !== undefined && now !== before ? true : undefined
  })
}

t.test('an address that leads to the primary itself, or to nothing, is not read', async (t) => {
  const nothing = new URL(standby.url)
  nothing.port = String(await freePort())
  const wrong = new URL(standby.url)
  wrong.password = 'another'
  for (const [url, reason] of [
    [primary.url, /not used: it is not a standby/],
    [nothing.href, /not used: it cannot be reached or cannot answer/],
    [wrong.href, /not used: it cannot be reached or cannot answer/],
  ] as const) {
    const app = await start(t, url)
    await nextMessage(app, reason)
    for (let quantity = 30; quantity < 35; quantity++) {
      await update(app, quantity)
      t.equal(await listed(app), quantity)
    }
    t.equal(messages(app).length, 1)
    t.equal((await app.send('GET', '/readyz')).status, 200)
    t.match(await statusOf(t, url), new RegExp(`^Standby {6}127\\.0\\.0\\.1:\\d+ is ${reason.source}`, 'm'))
  }
  t.notMatch(await statusOf(t, ''), 'Standby')
})

t.test('a role that may not ask which cluster it is on reads from the primary', async (t) => {
  await primary.query('REVOKE EXECUTE ON FUNCTION pg_control_system() FROM public')
  t.teardown(() => primary.query('GRANT EXECUTE ON FUNCTION pg_control_system() TO public'))
  const app = await start(t, standby.url)
  await nextMessage(app, /not used: the servers cannot say which cluster/)
  await update(app, 40)
  t.equal(await listed(app), 40)
})

t.test('a role that may not ask any more how far the standby has to be reads from the primary', async (t) => {
  const app = await start(t, standby.url)
  await nextMessage(app, /^lists are read from the standby$/)
  await update(app, 41)
  t.equal(await listed(app), 41)
  await primary.query('REVOKE EXECUTE ON FUNCTION pg_current_wal_flush_lsn() FROM public')
  t.teardown(() => primary.query('GRANT EXECUTE ON FUNCTION pg_current_wal_flush_lsn() TO public'))
  await update(app, 42)
  t.equal(await listed(app), 42)
  t.match(messages(app).at(-1), /not used: the servers cannot say which cluster/)
})

t.test('of several hosts, one that is a standby is read', async (t) => {
  const hosts = [primary, standby].map(({ url }) => new URL(url).host).join(',')
  const { username, password, pathname } = new URL(standby.url)
  const app = await start(
    t,
    `postgres://${username}:${password}@${hosts}${pathname}?target_session_attrs=standby`,
  )
  await nextMessage(app, /^lists are read from the standby$/)
  await update(app, 50)
  t.equal(await listed(app), 50)
})

t.test('a standby that lags is left for the next host', async (t) => {
  const relayToStandby = async (onConnection: () => void): Promise<URL> => {
    const relay = await startRelay({ target: () => new URL(standby.url), onConnection })
    t.teardown(() => {
      relay.close()
      relay.cut()
    })
    return new URL(relay.url)
  }
  let isNextUsed = false
  const first = await relayToStandby(() => {})
  const next = await relayToStandby(() => {
    isNextUsed = true
  })
  const app = await start(t, first.href.replace(first.host, `${first.host},${next.host}`), {
    standby: { ...standbyLimits, connect: 120_000 },
  })
  await nextMessage(app, /^lists are read from the standby$/)
  t.notOk(isNextUsed)
  await standby.query('SELECT pg_wal_replay_pause()')
  t.teardown(() => standby.query('SELECT pg_wal_replay_resume()').catch(() => []))
  await update(app, 52)
  t.equal(await listed(app), 52)
  t.match(messages(app).at(-1), /not used: it does not replay within 2 seconds/)
  await until('a connection to the next host', () => isNextUsed)
  const seen = messages(app).length
  await standby.query('SELECT pg_wal_replay_resume()')
  await nextMessage(app, /^lists are read from the standby$/, seen)
})

t.test(
  'a table that cannot be read exactly from a standby is not read there, before and after a list',
  async (t) => {
    for (const [replacement, restoration] of [
      [
        'ALTER TABLE inventory RENAME TO stock; CREATE VIEW inventory AS TABLE stock; GRANT SELECT ON inventory TO service',
        'DROP VIEW inventory; ALTER TABLE stock RENAME TO inventory',
      ],
      ['ALTER TABLE inventory SET UNLOGGED', 'ALTER TABLE inventory SET LOGGED'],
    ] as const) {
      await primary.query(replacement)
      const app = await start(t, standby.url)
      await nextMessage(app, /^lists are read from/)
      t.equal((await app.send('GET', '/v1/inventory')).status, 200)
      await nextCheck()
      t.match(messages(app), [/not used: the table cannot be read there exactly/])
      t.equal(messages(app).length, 1)
      await primary.query(restoration)
      await nextMessage(app, /^lists are read from the standby$/)
    }
  },
)

t.test('another database of the same cluster is not read', async (t) => {
  await primary.query('CREATE DATABASE other TEMPLATE template0')
  const url = new URL(standby.url)
  url.pathname = '/other'
  await eventually('the database on the standby', async () =>
    (await standby.query("SELECT FROM pg_database WHERE datname = 'other'")).length > 0 ? true : undefined,
  )
  const app = await start(t, url.href)
  await nextMessage(app, /not used/)
  await update(app, 60)
  t.equal(await listed(app), 60)
})

t.test('an older copy of the database is read as it is', async (t) => {
  const named = (url: string, database: string): string =>
    Object.assign(new URL(url), { pathname: database }).href
  const run = async (database: string, ...statements: string[]): Promise<unknown[]> => {
    const client = new pg.Client({ connectionString: named(primary.superuserUrl, database) })
    await client.connect()
    let rows: unknown[] = []
    for (const statement of statements) rows = (await client.query(statement)).rows
    await client.end()
    return rows
  }
  await run('template1', 'CREATE DATABASE stock')
  await migrate({ url: named(primary.superuserUrl, 'stock'), direction: 'up', log: () => {} })
  await run(
    'stock',
    "INSERT INTO inventory VALUES (1, 130, 'available')",
    'GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA public TO service',
  )
  await run('template1', 'CREATE DATABASE copy TEMPLATE stock')
  const app = await startApp(t, named(primary.url, 'stock'), {
    env: { READ_DATABASE_URL: named(standby.url, 'stock') },
  })
  await nextMessage(app, /^lists are read from the standby$/)
  await update(app, 131)
  t.equal(await listed(app), 131)
  await run(
    'template1',
    'ALTER DATABASE stock ALLOW_CONNECTIONS false',
    "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE datname = 'stock'",
    'ALTER DATABASE stock RENAME TO former',
    'ALTER DATABASE copy RENAME TO stock',
  )
  await eventually('a list', async () =>
    (await app.send('GET', '/v1/inventory')).status === 200 ? true : undefined,
  )
  t.strictSame(await run('stock', 'SELECT quantity FROM inventory'), [{ quantity: 130 }])
  t.equal(await listed(app), 130)
})

t.test('an older copy of both servers is read as it is', async (t) => {
  const servers = [primary, standby]
  const stopBoth = async (): Promise<void> => {
    for (const server of servers) await server.stop()
  }
  const startBoth = async (): Promise<void> => {
    for (const server of servers) await server.start()
  }
  const copy = promisify(execFile)
  await stopBoth()
  for (const { data } of servers) await copy('cp', ['-a', data, `${data}.copy`])
  await startBoth()
  const app = await start(t, standby.url)
  const before = await listed(app)
  await nextMessage(app, /^lists are read from the standby$/)
  await update(app, before + 1)
  t.equal(await listed(app), before + 1)
  await stopBoth()
  for (const { data } of servers) {
    await rm(data, { recursive: true })
    await copy('mv', [`${data}.copy`, data])
  }
  await startBoth()
  await eventually('a list', async () =>
    (await app.send('GET', '/v1/inventory')).status === 200 ? true : undefined,
  )
  t.equal(await listed(app), before)
})

t.test('a standby that is promoted is not read from then on', async (t) => {
  const app = await start(t, standby.url)
  await nextMessage(app, /^lists are read from the standby$/)
  await update(app, 70)
  t.equal(await listed(app), 70)
  await standby.query('SELECT pg_promote()')
  await standby.query('UPDATE inventory SET quantity = 4711')
  await update(app, 71)
  t.equal(await listed(app), 71)
  t.match(messages(app).at(-1), /not used: it is not a standby/)
})
