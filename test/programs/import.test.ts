import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import t, { type Test } from 'tap'
import { startApp } from '../support/app.ts'
import { runCommand } from '../support/command.ts'
import { addEntries, stockOf, testDatabase, waitForLocks } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { json } from '../support/http.ts'
import { type Outcome, startProgram, temporaryFolder } from '../support/program.ts'

/** Imports a text as a file. */
async function load(t: Test, url: string, input: string | Buffer, ...args: string[]): Promise<Outcome> {
  const cwd = await temporaryFolder(t)
  await writeFile(path.join(cwd, 'stock.csv'), input)
  return runCommand(t, ['import', 'stock.csv', ...args], { env: { DATABASE_URL: url }, cwd })
}

t.test('CSV adds and changes entries; a status that is left open stays or is available', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [
    ['1', 9, 'sold'],
    ['2', 9, 'pending'],
    ['3', 9, 'sold'],
    ['4', 9, 'sold'],
  ])
  const csv = 'petId,quantity,status\n1,5,available\n2,6,\n3,9,sold\n5,0,\n6,1,pending\n'
  const { code, stdout, stderr } = await load(t, database.url, csv)
  t.equal(code, 0)
  t.equal(stdout, '2 added, 2 changed, 1 unchanged\n')
  t.equal(stderr, '5 rows read; checking\n5 rows checked; writing\n')
  t.equal(
    await stockOf(database),
    '1,5,available\n2,6,pending\n3,9,sold\n4,9,sold\n5,0,available\n6,1,pending',
  )
})

const utf16 = (text: string): Buffer => Buffer.from(`\uFEFF${text}`, 'utf16le')

t.test('every spelling of CSV that programs write is read', async (t) => {
  const database = await testDatabase(t)
  const csv = 'quantity,petId\n5,1\n0,-3\n'
  const table = '"petId","quantity","status"\n"1","5",""\n"-3","0","available"\n'
  for (const input of [
    csv,
    csv.trimEnd(),
    `\uFEFF${csv}`,
    utf16(csv),
    utf16(csv).swap16(),
    csv.replaceAll('\n', '\r\n'),
    csv.replaceAll('\n', '\r'),
    csv.replace('\n', '\r\n'),
    csv.replaceAll('\n', '\n\n'),
    `${csv},\n,\n,,,\n`,
    table,
    table.replaceAll('"', ''),
  ]) {
    await database.query('TRUNCATE inventory')
    const { code, stderr } = await load(t, database.url, input)
    t.equal(code, 0, `${JSON.stringify(input.toString())}: ${stderr}`)
    t.equal(await stockOf(database), '-3,0,available\n1,5,available')
  }
})

t.test('an input that is no CSV in a known encoding is refused, and the message names it', async (t) => {
  const database = await testDatabase(t)
  for (const [input, error] of [
    [
      utf16('petId,quantity\n1,1\n').subarray(2),
      /^inventory: stock\.csv has null characters; save it as text in UTF-8/,
    ],
    ['petId,quantity\n1,1\0\n', /^inventory: stock\.csv has null characters/],
    [
      '',
      /^line 1: the first line must name the columns: petId, quantity and optionally status, but it is empty\n/,
    ],
    ['petId;quantity\n1;2\n', /^line 1: .*, not "petId;quantity"; separate the columns with commas\n/],
    ['petId,petId,quantity\n1,1,2\n', /^line 1: /],
    ['petId,quantity,price\n1,1,2\n', /^line 1: /],
    [
      `petId,quantity\n1,${'1'.repeat(300_000)}\n`,
      /^inventory: stock\.csv has a line of more than 65536 characters;/,
    ],
  ] as const) {
    const { code, stdout, stderr } = await load(t, database.url, input)
    t.strictSame([code, stdout], [3, ''])
    t.match(stderr, error)
    t.match(stderr, /; nothing was changed\n$/)
  }
  t.equal(await stockOf(database), '')
})

/** Imports lines, which must report exactly those that have an error, with their numbers. */
async function reportsLines(
  t: Test,
  url: string,
  lines: readonly (readonly [text: string, error?: RegExp])[],
  ...args: string[]
): Promise<void> {
  const { code, stdout, stderr } = await load(t, url, lines.map(([text]) => text).join('\n'), ...args)
  t.strictSame([code, stdout], [3, ''])
  const reported = stderr.split('\n').slice(1)
  for (const [index, [text, error]] of lines.entries()) {
    if (error === undefined) continue
    const [, number, words] = /^line (\d+): (.*)$/.exec(reported.shift() ?? '') ?? []
    t.equal(number, String(index + 1), text.slice(0, 60))
    t.match(words, error, text.slice(0, 60))
  }
  const count = lines.filter(([, error]) => error !== undefined).length
  t.strictSame(reported, [`inventory: stock.csv has ${count} errors; nothing was changed`, ''])
}

t.test('every wrong line is reported with its number, and nothing is written', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'sold']])
  const quantity =
    /^quantity must be an integer from 0 to 2147483647, in digits and without leading zeros, not "/
  const lines: [text: string, error?: RegExp][] = [
    ['petId,quantity,status'],
    ['1,5,sold'],
    [''],
    [
      'x,5,sold',
      /^petId must be an integer from -9223372036854775808 to 9223372036854775807, in digits .*, not "x"$/,
    ],
    ['2,1.000,sold', quantity],
    [',,,'],
    ['3,5,Sold', /^status must be one of available, pending, sold, not "Sold"$/],
    ['y,-1,eaten', /^petId must be .*; quantity must be .*; status must be/],
    ['9,1', /^there must be 3 values, not 2$/],
    ['10,1,sold,', /^there must be 3 values, not 4$/],
    ['11,"1"2,sold', /^quantity must be .*, not "\\"1\\"2"$/],
    ['12,"1,sold', /^quantity must be .*, not "\\"1"$/],
    ['\\.', /^there must be 3 values, not 1$/],
    ['13,\t1\\,sold', /^quantity must be .*, not "\\t1\\\\"$/],
    ['\\N,1,sold', /^petId must be .*, not "\\\\N"$/],
    ['1,6,sold', /^petId 1 already occurs in line 2$/],
  ]
  await reportsLines(t, database.url, lines)
  t.equal(await stockOf(database), '1,9,sold')
})

t.test(
  'what an import accepts, the API accepts, and stores the same; but in CSV a number is digits',
  async (t) => {
    const database = await testDatabase(t)
    const { send } = await startApp(t, database.url)
    const numbers = [
      '0',
      '-0',
      '5',
      '007',
      '-1',
      '2147483647',
      '2147483648',
      '9223372036854775807',
      '1.000',
      '12.0',
      '1e2',
      '1E2',
    ]
    const others = [
      '0x10',
      '0b1',
      '0o7',
      '1_000',
      '1,000',
      ' 5',
      '5 ',
      '+5',
      '５',
      '٥',
      '5\u00a0',
      '',
      'NaN',
      'Infinity',
      '1.5',
      '9'.repeat(5000),
    ]
    for (const text of [...numbers, ...others]) {
      await database.query("TRUNCATE inventory; INSERT INTO inventory VALUES (1, 9, 'sold')")
      const { status } = await send('PATCH', '/v1/inventory/1', json(`{"quantity":${text}}`))
      const stored = await stockOf(database)
      await database.query('UPDATE inventory SET quantity = 9')
      const { code } = await load(t, database.url, `petId,quantity\n1,"${text}"\n`)
      const isDigits = !['1.000', '12.0', '1e2', '1E2', ' 5', '5 '].includes(text)
      t.equal(code, status === 200 && isDigits ? 0 : 3, `quantity ${text.slice(0, 30)}`)
      if (code === 0) t.equal(await stockOf(database), stored)
    }
    const edges = [
      '-9223372036854775808',
      '-9223372036854775809',
      '-5',
      '00',
      '-00',
      '01',
      '123456789',
      '1234567890',
    ]
    for (const text of [...numbers, ...others, ...edges]) {
      await database.query('TRUNCATE inventory')
      const { status } = await send(
        'PATCH',
        `/v1/inventory/${encodeURIComponent(text)}`,
        json({ quantity: 1 }),
      )
      const { code } = await load(t, database.url, `petId,quantity\n"${text}",1\n`)
      // The entry does not exist for a right petId; an empty one is another path.
      t.equal(code, status === 404 && text !== '' ? 0 : 3, `petId ${text.slice(0, 30)}`)
    }
  },
)

t.test('the first 20 errors and the number of the others are reported', async (t) => {
  const database = await testDatabase(t)
  const csv = `petId,quantity\n${'x,1\n'.repeat(1230)}1,1\n1,2\n`
  const { code, stderr } = await load(t, database.url, csv)
  t.equal(code, 3)
  const lines = stderr.split('\n')
  t.equal(lines.length, 1 + 20 + 2)
  t.match(lines[20], /^line 21: /)
  t.equal(
    lines[21],
    'inventory: stock.csv has 1,231 errors, of which these are the first 20; nothing was changed',
  )
})

t.test('mode replace removes what is not in the file, but not everything', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [
    ['1', 9, 'sold'],
    ['2', 9, 'sold'],
  ])
  const replaced = await load(
    t,
    database.url,
    'petId,quantity\n3,1\n2,1\n',
    '--mode',
    'replace',
    '--allow-removals',
  )
  t.equal(replaced.stdout, '1 added, 1 changed, 0 unchanged, 1 removed\n')
  t.equal(await stockOf(database), '2,1,sold\n3,1,available')
  const empty = await load(t, database.url, 'petId,quantity\n', '--mode', 'replace')
  t.equal(empty.code, 1)
  t.match(empty.stderr, /would remove them all/)
  t.equal(await stockOf(database), '2,1,sold\n3,1,available')
})

t.test('mode replace asks before it removes more than a tenth of the entries', async (t) => {
  const database = await testDatabase(t)
  const ids = Array.from({ length: 20 }, (_, index) => String(index))
  const without = (count: number): string =>
    `petId,quantity\n${ids
      .slice(count)
      .map((id) => `${id},9\n`)
      .join('')}`
  const fill = async (): Promise<void> => {
    await database.query(
      "INSERT INTO inventory SELECT id, 9, 'sold' FROM generate_series(0, 19) AS id ON CONFLICT DO NOTHING",
    )
  }
  const count = async (): Promise<unknown> =>
    (await database.query('SELECT count(*) FROM inventory'))[0]?.['count']
  await fill()

  const refused = await load(t, database.url, without(3), '--mode', 'replace')
  t.strictSame([refused.code, refused.stdout], [5, ''])
  t.equal(
    refused.stderr,
    '17 rows read; checking\ninventory: --mode replace would remove 3 of 20 entries; nothing was changed. To confirm, add --allow-removals.\n',
  )
  t.equal(await count(), '20')
  t.equal((await load(t, database.url, without(3), '--mode', 'replace', '--dry-run')).code, 0)
  t.match(await load(t, database.url, without(2), '--mode', 'replace'), {
    code: 0,
    stdout: '0 added, 0 changed, 18 unchanged, 2 removed\n',
  })
  await fill()
  t.equal((await load(t, database.url, without(19), '--mode', 'replace', '--allow-removals')).code, 0)
  t.equal(await count(), '1')

  const cwd = await temporaryFolder(t)
  await writeFile(path.join(cwd, 'stock.csv'), without(3))
  for (const [answer, code, left] of [
    ['no\n', 5, '20'],
    ['', 5, '20'],
    ['yes\n', 0, '17'],
  ] as const) {
    await fill()
    const program = await startProgram(t, 'cli', {
      args: ['import', 'stock.csv', '--mode', 'replace'],
      env: {
        DATABASE_URL: database.url,
        NODE_OPTIONS: '--import=data:text/javascript,process.stdin.isTTY=process.stderr.isTTY=true',
      },
      cwd,
      input: null,
    })
    await program.output(/would remove 3 of 20 entries\. Continue\? \(yes\/no\) /)
    program.process.stdin?.end(answer)
    const outcome = await program.ended
    t.equal(outcome.code, code, outcome.stderr)
    t.equal(await count(), left)
  }
})

t.test('--dry-run says what would change and changes nothing', async (t) => {
  const database = await testDatabase(t)
  await addEntries(
    database,
    ['1', '2', '3', '9007199254740993'].map((id) => [id, 9, 'sold']),
  )
  const csv = 'petId,quantity,status\n3,9,\n1,9,pending\n2,1,\n-4,1,\n'
  const changes = 'Dry run: nothing was changed. The import would be: 1 added, 2 changed, 1 unchanged'
  t.match(await load(t, database.url, csv, '--dry-run'), { code: 0, stdout: `${changes}\n` })
  t.match(await load(t, database.url, csv, '--dry-run', '--mode', 'replace'), {
    code: 0,
    stdout: `${changes}, 1 removed\n`,
  })
  t.equal((await load(t, database.url, 'petId,quantity\nx,1\n', '--dry-run')).code, 3)
  t.equal(await stockOf(database), '1,9,sold\n2,9,sold\n3,9,sold\n9007199254740993,9,sold')
})

t.test('the second of two concurrent imports waits for the first', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'sold']])
  const release = await database.hold('SELECT * FROM inventory WHERE pet_id = 1 FOR UPDATE')
  const outcomes = Promise.all([
    load(t, database.url, 'petId,quantity\n1,1\n2,1\n', '--mode', 'replace', '--allow-removals'),
    load(t, database.url, 'petId,quantity\n3,2\n1,2\n', '--mode', 'replace', '--allow-removals'),
  ])
  await waitForLocks(database, 2)
  await release()
  t.strictSame(
    (await outcomes).map(({ code }) => code),
    [0, 0],
  )
  t.ok(['1,1,sold\n2,1,available', '1,2,sold\n3,2,available'].includes(await stockOf(database)))
})

t.test('an import waits for other changes, whatever the isolation level of the database', async (t) => {
  const database = await testDatabase(t)
  const name = new URL(database.url).pathname.slice(1)
  await database.query(`ALTER DATABASE ${name} SET default_transaction_isolation = 'serializable'`)
  await addEntries(database, [['1', 9, 'sold']])

  const update = await database.hold('UPDATE inventory SET quantity = 5 WHERE pet_id = 1', 'COMMIT')
  const changing = load(t, database.url, 'petId,quantity\n1,1\n')
  await waitForLocks(database)
  await update()
  t.match(await changing, { code: 0, stdout: '0 added, 1 changed, 0 unchanged\n' })
})

t.test('a signal while it reads or while it writes leaves nothing behind, at once', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'sold']])
  const env = { DATABASE_URL: database.url }
  const busy = async (): Promise<unknown> =>
    database.query(
      "SELECT state FROM pg_stat_activity WHERE application_name = 'petstore-inventory cli' AND datname = current_database()",
    )

  const reading = await startProgram(t, 'cli', { args: ['import', '-', '--rows', '1'], env, input: null })
  reading.process.stdin?.write('petId,quantity\n2,1\n')
  await eventually('the import to begin', async () =>
    JSON.stringify(await busy()) === '[]' && reading.process.exitCode === null ? undefined : true,
  )
  reading.process.kill('SIGINT')
  t.match(await reading.ended, {
    code: 130,
    stdout: '',
    stderr: /inventory: interrupted; nothing was changed\n$/,
  })

  const release = await database.hold('SELECT * FROM inventory WHERE pet_id = 1 FOR UPDATE')
  const writing = await startProgram(t, 'cli', {
    args: ['import', '-', '--rows', '2'],
    env,
    input: 'petId,quantity\n2,1\n1,1\n',
  })
  await writing.output(/2 rows checked; writing/)
  await waitForLocks(database)
  writing.process.kill('SIGTERM')
  t.match(await writing.ended, { code: 143, stderr: /interrupted; nothing was changed\n$/ })
  await eventually('the server to end the statement', async () =>
    JSON.stringify(await busy()) === '[]' ? true : undefined,
  )
  await release()
  t.equal(await stockOf(database), '1,9,sold')
})

t.test('a file that cannot be read is one message', async (t) => {
  for (const [file, message] of [
    ['nowhere.csv', /^inventory: The file cannot be read: ENOENT.*nowhere\.csv'\n$/],
    ['.', /^inventory: The file cannot be read: \. is a folder\n$/],
  ] as const) {
    const { code, stdout, stderr } = await runCommand(t, ['import', file], {
      env: { DATABASE_URL: 'postgres://127.0.0.1:1/x' },
    })
    t.strictSame([code, stdout], [1, ''])
    t.match(stderr, message)
  }
})

t.test(
  'entries that a constraint or trigger of the operator rejects are a reason, and nothing is written',
  async (t) => {
    const database = await testDatabase(t)
    await addEntries(database, [
      ['1', 9, 'sold'],
      ['2', 9, 'sold'],
    ])
    await database.query(
      "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'at most 500'; END$$",
    )
    const rules: [rule: string, removal: string, reason: RegExp][] = [
      [
        'ALTER TABLE inventory ADD CONSTRAINT few CHECK (quantity < 500)',
        'ALTER TABLE inventory DROP CONSTRAINT few',
        /violates check constraint "few" \(Failing row contains \(2, 700, sold\)\)/,
      ],
      [
        'CREATE CONSTRAINT TRIGGER few AFTER UPDATE ON inventory INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()',
        'DROP TRIGGER few ON inventory',
        /at most 500/,
      ],
    ]
    for (const [rule, removal, reason] of rules) {
      await database.query(rule)
      const { code, stdout, stderr } = await load(t, database.url, 'petId,quantity\n1,1\n2,700\n')
      t.strictSame([code, stdout], [3, ''])
      t.match(
        stderr,
        new RegExp(
          `\\ninventory: The database rejects the entries: .*${reason.source}; nothing was changed\\.\n$`,
        ),
      )
      t.equal(await stockOf(database), '1,9,sold\n2,9,sold')
      await database.query(removal)
    }
  },
)
