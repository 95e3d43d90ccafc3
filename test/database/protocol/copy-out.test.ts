import { Socket } from 'node:net'
import pg from 'pg'
import t, { type Test } from 'tap'
import { CopyOut, type TextRow } from '../../../src/database/protocol/copy-out.ts'
import { testDatabase } from '../../support/database.ts'

/** A connection whose bytes arrive in pieces of the given size, however many the network delivers at once. */
class Dripping extends Socket {
  readonly #size: number

  constructor(size: number) {
    super()
    this.#size = size
  }

  override push(chunk: Buffer | null): boolean {
    if (chunk === null) return super.push(null)
    let more = true
    for (let at = 0; at < chunk.length; at += this.#size)
      more = super.push(chunk.subarray(at, at + this.#size))
    return more
  }
}

/** A connection whose bytes arrive one at a time, with time for everything else in between. */
class Trickling extends Socket {
  override push(chunk: Buffer | null): boolean {
    if (chunk === null) setImmediate(() => super.push(null))
    else for (const byte of chunk) setImmediate(() => super.push(Buffer.of(byte)))
    return true
  }
}

const { url } = await testDatabase(t)

async function connect(t: Test, pieceSize = 65_536): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, stream: () => new Dripping(pieceSize) })
  client.on('error', () => {})
  await client.connect()
  t.teardown(() => client.end())
  return client
}

async function textOf(rows: AsyncIterable<Buffer>): Promise<string> {
  let text = ''
  for await (const piece of rows) text += piece.toString()
  return text
}

const numbers = (count: number): string =>
  Array.from({ length: count }, (_, index) => `${index + 1}\n`).join('')

t.test('rows are complete wherever the network cuts them', async (t) => {
  for (const size of [1, 2, 3, 4, 5, 6, 7, 11, 64, 1000, 65_536]) {
    const client = await connect(t, size)
    const rows = client.query(new CopyOut('COPY (SELECT generate_series(1, 3000)) TO STDOUT'))
    t.equal(await textOf(rows), numbers(3000), `pieces of ${size} bytes`)
    t.strictSame((await client.query('SELECT 1 AS one')).rows, [{ one: 1 }])
  }
})

t.test('a connection serves one after the other, and other statements between', async (t) => {
  const client = await connect(t)
  for (const count of [0, 1, 200_000, 7]) {
    const rows = client.query(new CopyOut(`COPY (SELECT generate_series(1, ${count})) TO STDOUT`))
    t.equal(await textOf(rows), numbers(count))
    t.strictSame((await client.query('SELECT $1::int AS count', [count])).rows, [{ count }])
  }
})

t.test(
  'an error of the server comes after the rows before it, and the connection is still good',
  async (t) => {
    for (const size of [1, 65_536]) {
      const client = await connect(t, size)
      const rows = client.query(
        new CopyOut('COPY (SELECT 1 / (500 - n) FROM generate_series(1, 900) n) TO STDOUT'),
      )
      await t.rejects(textOf(rows), { code: '22012' })
      await t.rejects(textOf(client.query(new CopyOut('COPY nothing TO STDOUT'))), { code: '42P01' })
      t.strictSame((await client.query('SELECT 1 AS one')).rows, [{ one: 1 }])
    }
  },
)

t.test('rows do not end before the whole message of an error has arrived', async (t) => {
  const client = new pg.Client({ connectionString: url, stream: () => new Trickling() })
  await client.connect()
  t.teardown(() => client.end())
  const rows = client.query(new CopyOut('COPY (SELECT 1 / (5 - n) FROM generate_series(1, 9) n) TO STDOUT'))
  await t.rejects(textOf(rows), { code: '22012' })
})

t.test('a COPY may be the last of several statements, whose rows are handed over', async (t) => {
  for (const size of [1, 2, 3, 5, 7, 64, 65_536]) {
    const client = await connect(t, size)
    const found: TextRow[] = []
    const rows = client.query(
      new CopyOut(
        `SET LOCAL work_mem = '8MB'; SELECT LIMIT 0; SELECT 'é', NULL, current_setting('work_mem') UNION ALL SELECT '', 'x', '';
         COPY (SELECT generate_series(1, 500)) TO STDOUT`,
        (row) => found.push(row),
      ),
    )
    t.equal(await textOf(rows), numbers(500), `pieces of ${size} bytes`)
    t.strictSame(found, [
      ['é', null, '8MB'],
      ['', 'x', ''],
    ])
    t.strictSame((await client.query('SHOW work_mem')).rows, [{ work_mem: '4MB' }], 'one transaction')
  }
})

t.test('an error of a statement before the COPY ends it, and the connection is still good', async (t) => {
  for (const size of [1, 65_536]) {
    const client = await connect(t, size)
    const text = `SET LOCAL work_mem = '8MB'; SELECT 1; SELECT 1 / 0; COPY (SELECT 1) TO STDOUT`
    await t.rejects(textOf(client.query(new CopyOut(text))), { code: '22012' })
    t.strictSame((await client.query('SHOW work_mem')).rows, [{ work_mem: '4MB' }])
  }
})

t.test('what the server says of itself between the rows is not taken for a row', async (t) => {
  const client = await connect(t, 3)
  await client.query(`LISTEN something;
    CREATE FUNCTION pg_temp.tell(n int) RETURNS int LANGUAGE plpgsql AS $$
    BEGIN
      RAISE NOTICE 'row %', n;
      PERFORM set_config('application_name', 'row ' || n, false);
      RETURN n;
    END $$`)
  const rows = client.query(
    new CopyOut('COPY (SELECT pg_temp.tell(n) FROM generate_series(1, 200) n) TO STDOUT'),
  )
  t.equal(await textOf(rows), numbers(200))
})

t.test('rows that are read slowly slow down the server instead of filling the memory', async (t) => {
  const client = await connect(t)
  const rows = client.query(
    new CopyOut(`COPY (SELECT repeat('x', 1000) FROM generate_series(1, 100000)) TO STDOUT`),
  )
  let most = 0
  let size = 0
  for await (const piece of rows) {
    size += piece.length
    most = Math.max(most, rows.readableLength)
    await new Promise((resolve) => setImmediate(resolve))
  }
  t.equal(size, 100_100_000)
  t.ok(most < 1_000_000, `${most} bytes at most`)
})

t.test('reading fails if the connection breaks between rows', async (t) => {
  const client = await connect(t)
  const { rows: found } = await client.query('SELECT pg_backend_pid() AS pid')
  const other = await connect(t)
  const rows = client.query(new CopyOut('COPY (SELECT generate_series(1, 100000000)) TO STDOUT'))
  await t.rejects(async () => {
    let killed = false
    for await (const _ of rows) {
      if (!killed) await other.query('SELECT pg_terminate_backend($1)', [found[0].pid])
      killed = true
    }
  })
})
