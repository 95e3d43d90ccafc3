import t, { type Test } from 'tap'
import { COUNT_ROWS } from '../../src/inventory/transfer/rows.ts'
import { inventory, runBash, startCommand } from '../support/command.ts'
import { readStock, type TestDatabase, testDatabase, waitForSessions } from '../support/database.ts'
import { type Outcome, run, temporaryFolder } from '../support/program.ts'

const csv = 'petId,quantity,status\n1,5,available\n20,600,sold\n3,7,\n'

/** Every pet that the whole input has but one, and two that it does not. */
const before = '1,9,sold\n2,9,sold\n3,9,sold\n4,9,sold'

const filled = (t: Test): Promise<TestDatabase> => testDatabase(t, { entries: before.split('\n') })

/** Runs a line of bash in which `inventory` is the command line, beside a file `stock.csv`. */
async function bash(t: Test, url: string, line: string, file = csv): Promise<Outcome> {
  const cwd = await temporaryFolder(t, { 'stock.csv': file })
  return runBash(t, line, { cwd, env: { DATABASE_URL: url } })
}

t.test('standard input is imported with the right number of rows, and no other pipe is', async (t) => {
  const database = await filled(t)
  for (const line of [
    'cat stock.csv | inventory import -',
    'cat stock.csv | inventory import /dev/stdin --rows 3',
    'inventory import <(cat stock.csv)',
  ]) {
    const stderr = /^inventory: Nothing was done, .*\n {2}awk 1 .* inventory import - --rows .*\n$/m
    t.match(await bash(t, database.url, line), { code: 2, stderr }, line)
  }
  t.equal(await readStock(database), before)
  const piped = `awk 1 stock.csv | inventory import - --rows "$(${COUNT_ROWS} stock.csv)"`
  const right = { code: 0, stdout: '1 added, 2 changed, 0 unchanged\n' }
  // Google Sheets writes no end of the last line.
  t.match(await bash(t, database.url, piped, csv.trimEnd()), right)
  t.equal(await readStock(database), '1,5,available\n2,9,sold\n3,7,sold\n4,9,sold\n20,600,sold')
  const file = await bash(t, database.url, 'inventory import - <stock.csv', csv.trimEnd())
  t.match(file, { code: 0, stdout: '0 added, 0 changed, 3 unchanged\n' }, 'a file ends where it ends')
})

t.test('the rows are counted as they are imported, however lines end', async (t) => {
  const { url } = await filled(t)
  const shell = (line: string, text: string) => run(t, 'sh', ['-c', line], { input: text }).ended
  const importing = async (text: string) => {
    const { stdout: rows } = await shell(COUNT_ROWS, text)
    return inventory(t, url, `import - --rows ${rows.trim()}`, { input: (await shell('awk 1', text)).stdout })
  }
  for (const more of ['', '\n', ',,\n,,\n', '\r\n,,\r\n\n'])
    t.match(await importing(`${csv}${more}`), { code: 0, stderr: '' }, JSON.stringify(more))
})

t.test('a pipe that is cut anywhere changes nothing', async (t) => {
  const database = await filled(t)
  const last = csv.lastIndexOf('\n', csv.length - 2) + 1
  const importing = (input: string, rows: number, options = ''): Promise<Outcome> =>
    inventory(t, database.url, `import - --rows ${rows} ${options}`, { input })
  const reason =
    /inventory: standard input (has no header|has . rows instead of|does not end in a newline)|wrong/
  for (const [index, cut] of [0, 1, 7, 21, 22, 23, last, last + 1, last + 3, csv.length - 1].entries()) {
    const mode = index % 2 === 0 ? 'upsert' : 'replace'
    const outcome = await importing(csv.slice(0, cut), 3, `--allow-removals --mode ${mode}`)
    t.match(outcome, { code: 3, stdout: '', stderr: /; nothing was changed\n$/ }, `${cut}`)
    t.match(outcome.stderr, reason, `${cut}`)
  }
  const open = /does not end in a newline.*"awk 1 FILE", and count its rows with "awk .*; nothing/
  t.match(await importing(csv.slice(0, -1), 3), { code: 3, stderr: open })
  const tooMany =
    /standard input has 3 rows instead of the expected 2; count its rows with .*"iconv .*"tr .*; nothing/
  t.match(await importing(csv, 2), { code: 3, stderr: tooMany })
  t.equal(await readStock(database), before)
})

t.test('Ctrl-C ends an import that waits for its pipe', async (t) => {
  const database = await filled(t)
  const program = await startCommand(t, database.url, 'import - --rows 3', { input: null })
  await waitForSessions(database, "query LIKE 'COPY%'")
  program.process.kill('SIGINT')
  t.match(await program.ended, { code: 130, stderr: /^inventory: interrupted; nothing was changed\n$/ })
  await waitForSessions(database, "query LIKE 'COPY%'", 0)
})
