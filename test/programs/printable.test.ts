import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { printable } from '../../src/process/printable.ts'
import { inventory, runCommand } from '../support/command.ts'
import { addKey, testDatabase } from '../support/database.ts'
import { temporaryFolder } from '../support/program.ts'

/** What a terminal would obey, reverse or hide, each between letters. */
const HOSTILE = 'a\u001b[31mb\u009bc\u007fd\u202ee\u200bf\u00a0g\u2028h\ufeffi\u2066j\u00adk'

/** None of its characters may reach a terminal. The end of a line is ours. */
const RAW = /[^\P{C}\n]|\p{Zl}|\p{Zp}|[^\P{Zs} ]/u

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
  const cwd = await temporaryFolder(t)
  const file = `${HOSTILE}\nname.csv`
  await writeFile(path.join(cwd, file), `petId,quantity\n1,${HOSTILE}\n2,5\u00a0\n`)
  await writeFile(path.join(cwd, 'header.csv'), `petId,${HOSTILE}\n`)
  for (const [args, shown] of [
    [['import', file], /line 2: .*\\u001b\[31m.*\nline 3: .* not "5\\u00a0"\n.*\\u000aname\.csv has errors/],
    [['import', 'header.csv'], /line 1: .*\\u202e/],
    [['import', `${HOSTILE}\n`], /ENOENT: .*\\u009b.*\\u200b.*\\u000a/],
    [['keys', 'revoke', HOSTILE], /no active key named .*\\u001b/],
    [[HOSTILE], /unknown command .*\\u001b/],
  ] as const) {
    const { code, stdout, stderr } = await runCommand(t, args, { env: { DATABASE_URL: url }, cwd })
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
     CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION E'${HOSTILE}\\nx'; END$$;
     CREATE TRIGGER refuse BEFORE INSERT ON inventory FOR EACH ROW EXECUTE FUNCTION refuse();
     CREATE TRIGGER "${HOSTILE}" BEFORE UPDATE ON inventory FOR EACH ROW EXECUTE FUNCTION refuse();
     ALTER TABLE inventory DISABLE TRIGGER "${HOSTILE}"`,
  )
  const file = path.join(await temporaryFolder(t), 'stock.csv')
  await writeFile(file, 'petId,quantity\n2,1\n')
  for (const args of [
    ['import', file],
    ['keys', 'list'],
    ['keys', 'list', '--json'],
    ['history'],
    ['history', '--json'],
    ['status'],
    ['status', '--json'],
  ]) {
    const { stdout, stderr } = await inventory(t, database.url, ...args)
    t.match(stdout + stderr, '\\u001b', printable(args.join(' ')))
    t.notMatch(stdout + stderr, RAW, printable(args.join(' ')))
    if (args.includes('--json')) t.doesNotThrow(() => JSON.parse(stdout), printable(args.join(' ')))
  }
})
