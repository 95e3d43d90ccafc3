import path from 'node:path'
import t from 'tap'
import { printable } from '../../src/process/terminal.ts'
import { inventory } from '../support/command.ts'
import { addKey, testDatabase } from '../support/database.ts'
import { temporaryFolder } from '../support/program.ts'
import { trigger } from '../support/triggers.ts'

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
