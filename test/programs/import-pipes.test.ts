import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFile, open, truncate, utimes, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { ImportSource } from '../../src/cli/import-source.ts'
import { runCommand } from '../support/command.ts'
import { addEntries, stockOf, type TestDatabase, testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { type Outcome, startProgram, temporaryFolder } from '../support/program.ts'

const binary = path.resolve('dist/cli.js')

const csv = 'petId,quantity,status\n1,5,available\n20,600,sold\n3,7,\n'

/** Every pet that the whole input has, and two that it does not. */
const before = '1,9,sold\n2,9,sold\n3,9,sold\n4,9,sold'

async function filled(t: Test): Promise<TestDatabase> {
  const database = await testDatabase(t)
  await addEntries(
    database,
    [1, 2, 3, 4].map((id) => [String(id), 9, 'sold']),
  )
  return database
}

async function pipe(t: Test, url: string, input: string, ...args: string[]): Promise<Outcome> {
  return runCommand(t, ['import', '-', ...args], { env: { DATABASE_URL: url }, input })
}

/** Runs a line of bash in which `$INVENTORY` is the command line. */
async function bash(t: Test, url: string, line: string): Promise<{ code: unknown; stderr: string }> {
  return promisify(execFile)('bash', ['--norc', '-c', line], {
    cwd: await temporaryFolder(t),
    env: {
      PATH: process.env['PATH'] ?? '',
      DATABASE_URL: url,
      INVENTORY: `${process.execPath} ${binary}`,
    },
  }).then(
    ({ stderr }) => ({ code: 0, stderr }),
    (error: { code: unknown; stderr: string }) => error,
  )
}

t.test('a pipe of which nothing is known is a usage error that shows what to do', async (t) => {
  const database = await filled(t)
  for (const line of [
    '$INVENTORY import - --mode replace --allow-removals',
    '$INVENTORY import - --dry-run',
    'echo petId,quantity | $INVENTORY import /dev/stdin',
    '$INVENTORY import <(echo petId,quantity; echo 1,1)',
    'mkfifo stock.csv; $INVENTORY import stock.csv',
  ]) {
    const { code, stderr } = await bash(t, database.url, line)
    t.equal(code, 2, line)
    for (const way of ['--rows', 'import a file']) t.match(stderr, way, `${line}: ${way}`)
    t.notMatch(stderr, /\n {4}at /)
  }
  t.equal(await stockOf(database), before)
})

t.test('a pipe with the right number of rows is imported', async (t) => {
  for (const line of [
    `cat stock.csv | $INVENTORY import - --rows 3`,
    `$INVENTORY import - --rows "$(($(wc -l <stock.csv) - 1))" <stock.csv`,
    `cat stock.csv | $INVENTORY import /dev/stdin --rows 3`,
    `$INVENTORY import --rows 3 <(cat stock.csv)`,
    `mkfifo pipe.csv; cat stock.csv >pipe.csv & $INVENTORY import pipe.csv --rows 3`,
    `$INVENTORY import /dev/stdin <stock.csv`,
  ]) {
    const database = await filled(t)
    const { code, stderr } = await bash(
      t,
      database.url,
      `printf '${csv.replaceAll('\n', '\\n')}' >stock.csv; ${line}`,
    )
    t.equal(code, 0, `${line}: ${stderr}`)
    t.equal(await stockOf(database), '1,5,available\n2,9,sold\n3,7,sold\n4,9,sold\n20,600,sold', line)
  }
})

t.test('a pipe that is cut anywhere, or has a row too many, changes nothing', async (t) => {
  const database = await filled(t)
  const last = csv.lastIndexOf('\n', csv.length - 2) + 1
  const cuts = [0, 1, 7, 21, 22, 23, last, last + 1, last + 3, csv.length - 1]
  for (const [index, cut] of cuts.entries()) {
    const mode = index % 2 === 0 ? 'upsert' : 'replace'
    const { code, stdout, stderr } = await pipe(
      t,
      database.url,
      csv.slice(0, cut),
      ...['--allow-removals', '--mode', mode, '--rows', '3'],
    )
    t.strictSame([code, stdout], [3, ''], `${cut}: ${stderr}`)
    t.match(stderr, /; nothing was changed\n$/)
  }
  t.match(await pipe(t, database.url, csv.trimEnd(), '--rows', '3'), {
    stderr:
      /standard input is incomplete, or not the expected input: its last line does not end in a newline/,
  })
  t.match(await pipe(t, database.url, csv, '--rows', '2'), { code: 3, stderr: /it has 3 of 2 expected rows/ })
  t.equal(await stockOf(database), before)
})

t.test('a client that is killed in the middle of what it sends changes nothing', async (t) => {
  const database = await filled(t)
  const rows = 200_000
  for (const mode of ['upsert', 'replace']) {
    // It writes whole lines without end, so it is cut only by the kill.
    const client = spawn(
      'bash',
      ['--norc', '-c', 'echo petId,quantity; for ((i = 0; ; i++)); do echo "$i,1"; done'],
      {
        stdio: ['ignore', 'pipe', 'ignore'],
      },
    )
    const program = await startProgram(t, 'cli', {
      args: ['import', '-', '--rows', String(rows), '--mode', mode, '--allow-removals'],
      env: { DATABASE_URL: database.url },
      input: null,
    })
    const stdin = program.process.stdin
    if (stdin === null) throw new Error('it has no standard input')
    client.stdout.pipe(stdin)
    for (let received = 0; received < 20_000; ) {
      const [chunk] = await once(client.stdout, 'data')
      received += chunk.length
    }
    client.kill('SIGKILL')
    t.match(await program.ended, { code: 3, stderr: /it has [\d,]+ of 200,000 expected rows|newline/ })
  }
  t.equal(await stockOf(database), before)
})

t.test('Ctrl-C ends an import that waits for its pipe, and SIGUSR1 opens no inspector', async (t) => {
  const database = await filled(t)
  const cwd = await temporaryFolder(t)
  await promisify(execFile)('mkfifo', [path.join(cwd, 'stock.csv')])
  const program = await startProgram(t, 'cli', {
    args: ['import', 'stock.csv', '--rows', '3'],
    env: { DATABASE_URL: database.url },
    cwd,
  })
  const writer = await open(path.join(cwd, 'stock.csv'), 'w')
  await eventually('the import to read', async () => {
    const reading = await database.query(
      "SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'COPY%'",
    )
    return reading.length > 0 || program.process.exitCode !== null ? true : undefined
  })
  program.process.kill('SIGUSR1')
  await database.query('SELECT')
  program.process.kill('SIGINT')
  t.match(await program.ended, { code: 130, stderr: /^inventory: interrupted; nothing was changed\n$/ })
  await writer.close()
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
    const source = await ImportSource.open(file, undefined)
    let chunks = 0
    for await (const _ of source) if (chunks++ === 0) await change()
    t.equal(await source.findError(true), error)
    source.close()
  }
})
