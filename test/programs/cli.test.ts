import path from 'node:path'
import type { Command } from 'commander'
import t, { type Test } from 'tap'
import { commandLine } from '../../src/cli/command-line.ts'
import { printable } from '../../src/process/terminal.ts'
import { inventory, runBash, runCommand, succeed } from '../support/command.ts'
import { addKey, testDatabase } from '../support/database.ts'
import { temporaryFolder } from '../support/program.ts'
import { startRelay } from '../support/relay.ts'
import { trigger } from '../support/triggers.ts'

/** The words of each command, a space before each; none for the command line itself. */
function paths(command: Command, parents = ''): string[] {
  return [parents, ...command.commands.flatMap((child) => paths(child, `${parents} ${child.name()}`))]
}

t.test('--help at every level goes to standard output, with an example', async (t) => {
  const program = commandLine(async () => '')
  for (const command of paths(program)) {
    const { code, stdout, stderr } = await runCommand(t, `${command} --help`)
    t.strictSame([code, stderr], [0, ''], command)
    t.match(stdout, `Usage: inventory${command}`)
    t.match(stdout, /\nExample:\n {2}inventory /, command)
  }
})

t.test('wrong usage has exit code 2, and an unknown name gets the nearest one', async (t) => {
  for (const [words, message] of [
    ['', /^Usage: inventory/],
    ['migrat', /unknown command 'migrat'\n\(Did you mean migrate\?\)/],
    ['keys creat', /unknown command 'creat'\n\(Did you mean create\?\)/],
    ['keys list --jso', /unknown option '--jso'\n\(Did you mean --json\?\)/],
    ['import x.csv --mode merge', /Allowed choices are upsert, replace/],
    ['import', /missing required argument 'file'/],
    ['history 2x', /a petId, such as 17/],
    ['keys create', /required option '--name <name>' not specified/],
    ['keys create --name a.b', /1 to 64 letters, digits, hyphens and underscores/],
    ['keys create --name x --expires 0d', /a whole number from 1 to 9999/],
    ['keys rotate x --overlap 24', /a whole number from 0 to 9999/],
  ] as const) {
    const outcome = await runCommand(t, words)
    t.match(outcome, { code: 2, stdout: '', stderr: message }, words)
    if (words !== '') t.match(outcome.stderr, /\nAdd --help for usage\.\n$/, words)
  }
})

/** Runs a command with this text as `.env`, and returns what it reports. */
const reportOn = async (t: Test, text: string | Buffer): Promise<string> =>
  (await runCommand(t, 'keys list', { cwd: await temporaryFolder(t, { '.env': text }) })).stderr

t.test('blanks at the beginning of a line of .env mean nothing, but in a value in quotes', async (t) => {
  for (const before of [' ', '\t', '  # a comment, "quoted', ' \r', ' \n \t\n', '\uFEFF', 'A="1\n 2"\n ']) {
    for (const blanks of ['', ' ', '\texport\t']) {
      const text = `${before}\n${blanks}DATABASE_URL=postgres://nobody@127.0.0.1:1/x\n`
      t.match(await reportOn(t, text), /ECONNREFUSED.*DATABASE_URL/, JSON.stringify(text))
    }
  }
  t.match(await reportOn(t, ' NODE_ENV="a\n\n  # b\n\tc=d "\n'), /, not "a\\n\\n {2}# b\\n\\tc=d"\n$/)
})

t.test('what is wrong in .env is named, and not its text', async (t) => {
  const line = /^inventory: \.env must have NAME=value on each line, .*; see line (.*)\n$/
  for (const [text, wrong] of [
    ['# PORT: 1\n\nexport PORT=3001\r\n  LOG_LEVEL = "info"\nAPI_KEYS="one,\ntwo"\nHOST=\n', undefined],
    ['PORT=3001\nLOG_LEVEL: secret\n', '2'],
    ['API_KEYS="one,\nPORT: 1"\nsecret\n=secret\nset PORT=3001', '3, 4, 5'],
  ] as const)
    t.equal(line.exec(await reportOn(t, text))?.[1], wrong, text)
  const encoded = Buffer.from('\uFEFFPORT=http\r\n', 'utf16le')
  const unreadable = /^inventory: \.env cannot be read: The encoded data was not valid[^\n]*\n$/
  t.match(await reportOn(t, encoded), unreadable)
})

const readStatus = async (t: Test, url: string) => {
  const { code, stdout } = await inventory(t, url, 'status --json')
  return { code, ...JSON.parse(stdout) }
}

t.test('status shows the server, the schema, the entries, the keys and the last backup', async (t) => {
  const { url, name, query } = await testDatabase(t, { entries: ['1,9,sold', '2,9,sold', '3,9,available'] })
  for (const change of ['create --name shop', 'create --name billing', 'rotate billing', 'revoke shop'])
    await succeed(t, url, `keys ${change}`)
  const { host, port, pathname } = new URL(url)
  const address = `${port === '' ? `${host}:5432` : host}${pathname}`
  t.match(await readStatus(t, url), {
    code: 0,
    database: { version: /^\d+(\.|beta|rc)\d+$/, address, readOnly: null },
    schema: { expected: /^\d{17}_/, pending: [], unknown: [] },
    entries: { available: 1, pending: 0, sold: 2 },
    keys: { active: 1, ending: 1, expired: 0, revoked: 1 },
    lastBackup: null,
    warnings: [],
  })
  const table = /^STATUS\ndatabase\.version +\d[\s\S]*\nschema\.pending +-\n.*\nentries\.available +1\n/
  t.match(await inventory(t, url, 'status'), { code: 0, stdout: table, stderr: '' })
  await query(
    `COMMENT ON DATABASE "${name}" IS 'Last backup: 2026-11-24T03:00:00Z';
     ${trigger('NULL')}; ALTER TABLE inventory DISABLE TRIGGER act;
     ALTER DATABASE ${name} SET default_transaction_read_only = on;
     ALTER DATABASE ${name} SET array_nulls = off`,
  )
  t.match(await readStatus(t, url), {
    code: 0,
    database: { readOnly: 'setting' },
    lastBackup: '2026-11-24T03:00:00.000Z',
    warnings: [/^The trigger act is disabled, .* "ALTER TABLE inventory ENABLE TRIGGER act"$/],
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

t.test('a command whose output fails exits with 1 or 141, and has created no key', async (t) => {
  const { url, query } = await testDatabase(t, { entries: ['1,9,sold'] })
  await succeed(t, url, 'keys create --name old')
  const before = await query('SELECT * FROM api_keys')
  const options = { env: { DATABASE_URL: url } }
  const full = /^inventory: Standard output cannot be written: ENOSPC.* not created\.\n$/m
  for (const [line, code, stderr] of [
    ['inventory keys rotate old >/dev/full', 1, full],
    ['inventory export >/dev/full', 1, full],
    ['inventory keys create --name new | true', 141, /^The key new .*\n$/],
    ["printf 'petId,quantity\\n2,2\\n' | inventory import - --rows 1 | true", 141, /^$/],
    ['inventory export | true', 141, /^$/],
  ] as const)
    t.match(await runBash(t, `set -o pipefail; ${line}`, options), { code, stderr }, line)
  t.strictSame(await query('SELECT * FROM api_keys'), before)
  t.equal((await query('SELECT FROM inventory')).length, 2, 'what was changed before remains')
})

const csv =
  'petId,quantity,status\n-9223372036854775808,0,available\n1,2147483647,pending\n9007199254740993,5,sold\n9223372036854775807,1,available\n'

t.test('export writes all entries in ascending petId, and an import restores them exactly', async (t) => {
  const { url } = await testDatabase(t, { entries: csv.trim().split('\n').slice(1).reverse() })
  const other = await testDatabase(t)
  t.equal(await succeed(t, other.url, 'export'), 'petId,quantity,status')
  t.match(await inventory(t, url, 'export'), { code: 0, stdout: csv, stderr: '' })
  t.match(await inventory(t, other.url, 'import - --rows 4 --mode replace', { input: csv }), { code: 0 })
  t.equal(await succeed(t, other.url, 'export'), csv.trim())
})

t.test('an export that fails half-way says so by its exit code', async (t) => {
  const { url } = await testDatabase(t, { entries: 30_000 })
  let size = 0
  const towardsClient = (bytes: Buffer) => {
    size += bytes.length
    return size < 200_000 ? bytes : undefined
  }
  const relay = await startRelay(t, url, { towardsClient })
  const stdout = 'petId,quantity,status\n1,0,sold\n'
  t.match(await inventory(t, relay.url, 'export'), { code: 1, stdout, stderr: /Connection terminated/ })
})

/** What a terminal would obey, reverse or hide, each between letters. */
const HOSTILE = 'a\u001b[31mb\u009bc\u007fd\u202ee\u200bf\u00a0g\u2028h\ufeffi\u2066j\u00adk'

/** None of its characters may reach a terminal, and no text that is not ours may begin a line. */
const RAW = /[^\P{C}\n]|\p{Zl}|\p{Zp}|[^\P{Zs} ]|^(x|name\.csv)/mu

t.test('every character of the kind is escaped, and no other', async (t) => {
  const text = 'Żółw, 犬 and 😀: "a b" \\ é ~'
  t.equal(
    printable(`${text}${HOSTILE}\n\t\ud800\u{e0001}\u115f\u034f`),
    `${text}a\\u001b[31mb\\u009bc\\u007fd\\u202ee\\u200bf\\u00a0g\\u2028h\\ufeffi\\u2066j\\u00adk` +
      '\\u000a\\u0009\\ud800\\udb40\\udc01\\u115f\\u034f',
  )
})

t.test('what comes from a file, its name or the command line never reaches the terminal raw', async (t) => {
  const { url } = await testDatabase(t)
  const file = `${HOSTILE}\nname.csv`
  const cwd = await temporaryFolder(t, {
    [file]: `petId,quantity\n1,${HOSTILE}\n2,5\u00a0\n`,
    'header.csv': `petId,${HOSTILE}\n`,
  })
  for (const [args, shown] of [
    [['import', file], /line 2: .*\\u001b\[31m.*\nline 3: .* not "5\\u00a0"\n.*\\u000aname\.csv has errors/],
    [['import', 'header.csv'], /line 1: .*\\u202e/],
    [['import', `${HOSTILE}\n`], /ENOENT: .*\\u009b.*\\u200b.*\\u000a/],
    [['keys', 'revoke', HOSTILE], /no active key named .*\\u001b/],
    [[HOSTILE], /unknown command .*\\u001b/],
  ] as const) {
    const { code, stdout, stderr } = await inventory(t, url, args, { cwd })
    t.not(code, 0, printable(args.join(' ')))
    t.match(stderr, shown)
    t.notMatch(stdout + stderr, RAW, printable(args.join(' ')))
  }
})

t.test('what comes from the database never reaches the terminal raw', async (t) => {
  const database = await testDatabase(t, { entries: ['1,9,sold'] })
  await addKey(database, 'ops')
  await database.query(
    `ALTER TABLE api_keys DROP CONSTRAINT api_keys_name_check;
     UPDATE api_keys SET name = E'${HOSTILE}\\nx';
     INSERT INTO inventory_history VALUES (1, 1, now(), 1, 9, 8, 'sold', 'sold', '${HOSTILE}', '${HOSTILE}', E'${HOSTILE}', '${HOSTILE}');
     ${trigger(`RAISE E'${HOSTILE}\\nx'`, 'TRIGGER act BEFORE INSERT ON inventory FOR EACH ROW')};
     CREATE TRIGGER "${HOSTILE}" BEFORE UPDATE ON inventory FOR EACH ROW EXECUTE FUNCTION act();
     ALTER TABLE inventory DISABLE TRIGGER "${HOSTILE}"`,
  )
  const file = path.join(await temporaryFolder(t, { 'stock.csv': 'petId,quantity\n2,1\n' }), 'stock.csv')
  const shown = ['keys list', 'keys list --json', 'history', 'history --json', 'status', 'status --json']
  for (const command of [`import ${file}`, ...shown]) {
    const { stdout, stderr } = await inventory(t, database.url, command)
    t.match(stdout + stderr, '\\u001b', command)
    t.notMatch(stdout + stderr, RAW, command)
    if (command.endsWith('--json')) t.doesNotThrow(() => JSON.parse(stdout), command)
  }
  await database.query(`DROP FUNCTION act CASCADE; ALTER TABLE inventory ADD "\u202e\nx" integer`)
  await database.query('TRUNCATE inventory; ALTER TABLE inventory ALTER "\u202e\nx" SET NOT NULL')
  const { stderr } = await inventory(t, database.url, `import ${file}`)
  t.match(stderr, /null value in column "\\u202e\\u000ax"/)
  t.notMatch(stderr, RAW)
})
