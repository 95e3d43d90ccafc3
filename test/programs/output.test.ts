import path from 'node:path'
import t from 'tap'
import { printable } from '../../src/process/terminal.ts'
import { inventory, runBash, succeed } from '../support/command.ts'
import { addKey, testDatabase } from '../support/database.ts'
import { temporaryFolder } from '../support/program.ts'
import { startRelay } from '../support/relay.ts'
import { trigger } from '../support/triggers.ts'

t.test('a command whose output fails exits with 1 or 141, and has created no key', async (t) => {
  const { url, query } = await testDatabase(t, { entries: ['1,9,sold'] })
  await succeed(t, url, 'keys create --name old')
  const before = await query('SELECT * FROM api_keys')
  const full = /^inventory: Standard output cannot be written: ENOSPC.* not created\.\n$/m
  for (const [line, code, stderr] of [
    ['inventory keys rotate old >/dev/full', 1, full],
    ['inventory export >/dev/full', 1, full],
    ['inventory keys create --name new | true', 141, /^The key new .*\n$/],
    ["printf 'petId,quantity\\n2,2\\n' | inventory import - --rows 1 | true", 141, /^$/],
    ['inventory export | true', 141, /^$/],
  ] as const)
    t.match(
      await runBash(t, `set -o pipefail; ${line}`, { env: { DATABASE_URL: url } }),
      { code, stderr },
      line,
    )
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
  t.equal(
    printable(`${HOSTILE}\n\t\ud800\u{e0001}\u115f\u034f`),
    'a\\u001b[31mb\\u009bc\\u007fd\\u202ee\\u200bf\\u00a0g\\u2028h\\ufeffi\\u2066j\\u00adk' +
      '\\u000a\\u0009\\ud800\\udb40\\udc01\\u115f\\u034f',
  )
  const text = 'Żółw, 犬 and 😀: "a b" \\ é ~'
  t.equal(printable(text), text)
  t.equal(JSON.parse(printable(JSON.stringify(HOSTILE))), HOSTILE)
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
