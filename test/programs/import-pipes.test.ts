import { execFile } from 'node:child_process'
import { appendFile, open, truncate, utimes, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { openSource } from '../../src/cli/import-source.ts'
import { runCommand } from '../support/command.ts'
import { stockOf, type TestDatabase, testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { type Outcome, run, startProgram, temporaryFolder } from '../support/program.ts'

const csv = 'petId,quantity,status\n1,5,available\n20,600,sold\n3,7,\n'

/** Every pet that the whole input has but one, and two that it does not. */
const before = '1,9,sold\n2,9,sold\n3,9,sold\n4,9,sold'

async function filled(t: Test): Promise<TestDatabase> {
  const database = await testDatabase(t)
  await database.query("INSERT INTO inventory SELECT id, 9, 'sold' FROM generate_series(1, 4) AS id")
  return database
}

/** Runs a line of bash in which `$INVENTORY` is the command line, beside a file `stock.csv`. */
async function bash(t: Test, url: string, line: string): Promise<Outcome> {
  const cwd = await temporaryFolder(t)
  await writeFile(path.join(cwd, 'stock.csv'), csv)
  const inventory = `${process.execPath} ${path.resolve('dist/cli.js')}`
  const env = { PATH: process.env['PATH'], DATABASE_URL: url, INVENTORY: inventory }
  return run(t, 'bash', ['-c', line], { cwd, env }).ended
}

t.test(
  'a pipe is imported with the right number of rows, and without it a usage error says so',
  async (t) => {
    const database = await filled(t)
    for (const [line, rows] of [
      ['cat stock.csv | $INVENTORY import -', '--rows "$(($(wc -l <stock.csv) - 1))"'],
      ['cat stock.csv | $INVENTORY import /dev/stdin', '--rows 3'],
      ['$INVENTORY import <(cat stock.csv)', '--rows 3'],
    ] as const) {
      const unknown = await bash(t, database.url, line)
      t.equal(unknown.code, 2, line)
      t.match(unknown.stderr, /--rows .*\nor import a file/)
      t.notMatch(unknown.stderr, /\n {4}at /)
      t.equal(await stockOf(database), before)
      const { code, stderr } = await bash(t, database.url, `${line} ${rows}`)
      t.equal(code, 0, `${line}: ${stderr}`)
      t.equal(await stockOf(database), '1,5,available\n2,9,sold\n3,7,sold\n4,9,sold\n20,600,sold', line)
      await database.query(
        "DELETE FROM inventory WHERE pet_id > 4; UPDATE inventory SET quantity = 9, status = 'sold'",
      )
    }
    t.equal((await bash(t, database.url, '$INVENTORY import /dev/stdin <stock.csv')).code, 0, 'it is a file')
  },
)

t.test('a pipe that is cut anywhere, or has a row too many, changes nothing', async (t) => {
  const database = await filled(t)
  const last = csv.lastIndexOf('\n', csv.length - 2) + 1
  const reason =
    /inventory: standard input (has no header|is incomplete, or not the expected input: .*)|wrong/
  for (const [index, cut] of [0, 1, 7, 21, 22, 23, last, last + 1, last + 3, csv.length - 1].entries()) {
    const mode = index % 2 === 0 ? 'upsert' : 'replace'
    const args = ['import', '-', '--allow-removals', '--mode', mode, '--rows', '3']
    const input = csv.slice(0, cut)
    const outcome = await runCommand(t, args, { env: { DATABASE_URL: database.url }, input })
    t.match(outcome, { code: 3, stdout: '', stderr: /; nothing was changed\n$/ }, `${cut}`)
    t.match(outcome.stderr, cut === csv.length - 1 ? 'its last line does not end in a newline' : reason)
  }
  const tooMany = await bash(t, database.url, '$INVENTORY import - --rows 2 <stock.csv')
  t.match(tooMany, { code: 3, stderr: /it has 3 of 2 expected rows/ })
  t.equal(await stockOf(database), before)
})

t.test('Ctrl-C ends an import that waits for its pipe, and SIGUSR1 opens no inspector', async (t) => {
  const database = await filled(t)
  const cwd = await temporaryFolder(t)
  await promisify(execFile)('mkfifo', [path.join(cwd, 'stock.csv')])
  const reading = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'COPY%'"
  for (const file of ['stock.csv', '-']) {
    const program = await startProgram(t, 'cli', {
      args: ['import', file, '--rows', '3'],
      env: { DATABASE_URL: database.url },
      cwd,
      input: null,
    })
    const writer = file === '-' ? undefined : await open(path.join(cwd, file), 'w')
    const readers = async (): Promise<number> => (await database.query(reading)).length
    await eventually('the import to read', async () => (await readers()) > 0)
    program.process.kill('SIGUSR1')
    await database.query('SELECT')
    program.process.kill('SIGINT')
    t.match(await program.ended, { code: 130, stderr: /^inventory: interrupted; nothing was changed\n$/ })
    await writer?.close()
    await eventually('the session of the import to end', async () => (await readers()) === 0)
  }
})

t.test('a file that changes while it is read is not whole', async (t) => {
  const file = path.join(await temporaryFolder(t), 'stock.csv')
  for (const [change, error] of [
    [async () => {}, undefined],
    [async () => truncate(file, 500_000), 'it changed while it was read'],
    [async () => appendFile(file, '7,7\n'), 'it changed while it was read'],
    [async () => utimes(file, 0, 0), 'it changed while it was read'],
  ] as const) {
    await writeFile(file, '12345,1\n'.repeat(100_000))
    const source = await openSource(file, undefined)
    let chunks = 0
    for await (const _ of source.stream) if (chunks++ === 0) await change()
    t.equal(await source.findError(true), error)
  }
})
