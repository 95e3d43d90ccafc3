import { appendFile, utimes, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { Readable } from 'node:stream'
import t, { type Test } from 'tap'
import { readLines } from '../../src/inventory/transfer/lines.ts'
import { COUNT_ROWS } from '../../src/inventory/transfer/rows.ts'
import { inventory, runBash, startCommand } from '../support/command.ts'
import { readStock, testDatabase, waitForLocks, waitForSessions } from '../support/database.ts'
import { type Outcome, run, temporaryFolder } from '../support/program.ts'
import { AT_COMMIT, trigger } from '../support/triggers.ts'

/** Imports a text as a file. */
async function load(t: Test, url: string, input: string | Buffer, options = ''): Promise<Outcome> {
  const cwd = await temporaryFolder(t, { 'stock.csv': input })
  return inventory(t, url, `import stock.csv ${options}`, { cwd })
}

const replace = '--mode replace --allow-removals'

t.test('CSV adds and changes entries; a status that is left open stays or is available', async (t) => {
  const database = await testDatabase(t)
  const filled = '1,9,sold\n2,9,pending\n3,9,sold\n4,9,sold'
  await load(t, database.url, `petId,quantity,status\n${filled}`)
  const csv = 'petId,quantity,status\n1,5,available\n2,6,\n3,9,sold\n5,0,\n6,1,pending\n'
  const changes = '2 added, 2 changed, 1 unchanged'
  const dryRun = `Dry run: nothing was changed. The import would be: ${changes}`
  t.match(await load(t, database.url, csv, '--dry-run'), { code: 0, stdout: `${dryRun}\n` })
  const replacing = await load(t, database.url, csv, '--dry-run --mode replace')
  t.match(replacing, { code: 0, stdout: `${dryRun}, 1 removed\n` })
  t.equal((await load(t, database.url, 'petId,quantity\nx,1\n', '--dry-run')).code, 3)
  t.equal(await readStock(database), filled)

  t.match(await load(t, database.url, csv), { code: 0, stdout: `${changes}\n`, stderr: '' })
  const imported = '1,5,available\n2,6,pending\n3,9,sold\n5,0,available\n6,1,pending'
  t.equal(await readStock(database), imported.replace('5,0', '4,9,sold\n5,0'))
  const stdout = '0 added, 0 changed, 5 unchanged, 1 removed\n'
  t.match(await load(t, database.url, csv, replace), { code: 0, stdout })
  t.equal(await readStock(database), imported)
})

const utf16 = (text: string): Buffer => Buffer.from(`\uFEFF${text}`, 'utf16le')

t.test('every spelling of CSV that programs write is read', async (t) => {
  const database = await testDatabase(t)
  const csv = 'quantity,petId\n5,1\n0,-3\n'
  for (const input of [
    csv.trimEnd(),
    `\uFEFF${csv}`,
    utf16(csv),
    utf16(csv).swap16(),
    csv.replaceAll('\n', '\r\n'),
    csv.replaceAll('\n', '\r'),
    csv.replace('\n', '\r\n'),
    `${csv.replaceAll('\n', '\n\n')},\n,\n,,,\n`,
    '"petId","quantity","status"\n"1","5",""\n"-3","0","available"\n',
    // An end of a line in two chunks of the file.
    `${csv}\n${'\r\n'.repeat(100_000)}`,
  ]) {
    await database.query('TRUNCATE inventory')
    const title = JSON.stringify(input.toString('utf8', 0, 99))
    t.match(await load(t, database.url, input), { code: 0, stderr: '' }, title)
    t.equal(await readStock(database), '-3,0,available\n1,5,available', title)
  }
})

t.test('a text is read in whatever pieces a pipe brings it', async (t) => {
  const text = 'petId,näme😀\r\n1,2\r3\n\r\n'
  const lines = ['petId,näme😀', '1,2', '3', '', '']
  const inputs = [Buffer.from(text), Buffer.from(`\uFEFF${text}`), utf16(text), utf16(text).swap16()]
  for (const input of [...inputs, Buffer.from('x'), Buffer.alloc(0)]) {
    for (let size = 1; size <= 5; size++) {
      const pieces = Array.from({ length: Math.ceil(input.length / size) }, (_, index) =>
        input.subarray(index * size, (index + 1) * size),
      )
      const read = (await Readable.from(readLines(Readable.from(pieces))).toArray()).flat()
      t.strictSame(read, input.length > 1 ? lines : [input.toString()], `${input.toString('hex')} by ${size}`)
    }
  }
})

t.test('a file without a right header, or that is no CSV in a known encoding, is refused', async (t) => {
  const database = await testDatabase(t)
  const header =
    /^line 1: the first line must name the columns, separated by commas: petId, quantity, status \(optional\), not "/
  for (const [input, error] of [
    ['', header],
    ['petId;quantity\n1;2\n', header],
    ['petId,petId,quantity\n1,1,2\n', header],
    ['petId,quantity,price\n1,1,2\n', header],
    [utf16('petId,quantity\n1,1\n').subarray(2), header],
    ['petId,quantity\n1,1\0\n', /^line 2: quantity must be .*, not "1\\u0000"\n/],
    [`petId,quantity\n1,${'1'.repeat(300_000)}\n`, /^inventory: .* a line of more than 65536 characters;/],
  ] as const) {
    const outcome = await load(t, database.url, input)
    t.match(outcome, { code: 3, stdout: '', stderr: error }, String(error))
    t.match(outcome.stderr, /; nothing was changed\n$/)
  }
})

t.test('every wrong line is reported with its number, and nothing is written', async (t) => {
  const database = await testDatabase(t, { entries: ['1,9,sold'] })
  const quantity = /^quantity must be an integer from 0 to 2147483647, in digits and .* leading zeros, not "/
  const lines: (readonly [text: string, error?: RegExp])[] = [
    ['petId,quantity,status'],
    ['1,5,sold'],
    [''],
    ['x,5,sold', /^petId must be an integer from -9223372036854775808 to 9223372036854775807, .*, not "x"$/],
    ['2,1.000,sold', quantity],
    [',,,'],
    ['3,5,Sold', /^status must be one of available, pending, sold, not "Sold"$/],
    ['y,-1,eaten', /^petId must be .*; quantity must be .*; status must be/],
    ['9223372036854775808,5,sold', /^petId must be /],
    ['3,2147483648,sold', quantity],
    ['3,-0,sold', quantity],
    ['007,5,sold', /^petId must be /],
    ['3,５,sold', quantity],
    ['9,1', /^there must be 3 values, not 2$/],
    ['10,1,sold,', /^there must be 3 values, not 4$/],
    ['11,"1"2,sold', /^quantity must be .*, not "\\"1\\"2"$/],
    ['12,"1,sold', /^quantity must be .*, not "\\"1"$/],
    ['\\.', /^there must be 3 values, not 1$/],
    ['13,\t1\\,sold', /^quantity must be .*, not "\\t1\\\\"$/],
    ['\\N,1,sold', /^petId must be .*, not "\\\\N"$/],
    ['1,6,sold', /^petId 1 already occurs in line 2$/],
  ]
  const { code, stdout, stderr } = await load(t, database.url, lines.map(([text]) => text).join('\n'))
  t.strictSame([code, stdout], [3, ''])
  const wrong = [...lines.entries()].filter(([, [, error]]) => error !== undefined)
  const reported = stderr.split('\n')
  const summary = 'inventory: stock.csv has errors; nothing was changed'
  t.strictSame(reported.splice(-2), [summary, ''])
  t.equal(reported.length, wrong.length)
  for (const [index, [text, error]] of wrong) {
    const [, number, words] = /^line (\d+): (.*)$/.exec(reported.shift() ?? '') ?? []
    t.equal(number, String(index + 1), text)
    t.match(words, error, text)
  }

  const many = await load(t, database.url, `petId,quantity\n${'x,1\n'.repeat(1230)}1,1\n1,2\n`)
  const firsts =
    /\nline 21: .*\ninventory: stock\.csv has errors; these are the first 20; nothing was changed\n$/
  t.match(many.stderr, firsts)
  t.equal(many.stderr.split('\n').length, 20 + 2)
  t.equal(await readStock(database), '1,9,sold')
})

t.test('mode replace removes more than a tenth of the entries only if that is allowed', async (t) => {
  const database = await testDatabase(t, { entries: 20 })
  for (const [kept, options, code, left] of [
    [17, '', 5, 20],
    [17, '--dry-run', 0, 20],
    [18, '', 0, 18],
    [0, '--allow-removals', 0, 0],
  ] as const) {
    const lines = ['petId,quantity', ...Array.from({ length: kept }, (_, index) => `${index + 1},9`)]
    const outcome = await load(t, database.url, lines.join('\n'), `--mode replace ${options}`)
    const refusal =
      /would remove 3 of 20 entries; nothing was changed\. To confirm, add --allow-removals\.\n$/
    t.match(outcome, { code, stderr: code === 5 ? refusal : /^$/ }, options)
    t.equal((await database.query('SELECT FROM inventory')).length, left, options)
  }
})

t.test('imports wait for each other and for other changes, at every isolation level', async (t) => {
  const database = await testDatabase(t, { entries: ['1,9,sold'] })
  await database.query(`ALTER DATABASE ${database.name} SET default_transaction_isolation = 'serializable'`)
  const update = await database.hold('UPDATE inventory SET quantity = 5 WHERE pet_id = 1', 'COMMIT')
  const files = ['petId,quantity\n1,1\n2,1\n', 'petId,quantity\n3,2\n1,2\n']
  const outcomes = Promise.all(files.map((csv) => load(t, database.url, csv, replace)))
  await waitForLocks(database, 2)
  await update()
  for (const { code, stderr } of await outcomes) t.equal(code, 0, stderr)
  t.ok(['1,1,sold\n2,1,available', '1,2,sold\n3,2,available'].includes(await readStock(database)))
})

t.test('a file that grows or changes during its import is refused', async (t) => {
  const database = await testDatabase(t, { entries: ['1,9,sold'] })
  const cwd = await temporaryFolder(t)
  const file = path.join(cwd, 'stock.csv')
  const input = (options: string) => inventory(t, database.url, `import stock.csv ${options}`, { cwd })
  const env = { DATABASE_URL: database.url }
  for (const [run, change] of [
    [() => input(''), () => appendFile(file, '3,1\n')],
    [() => input('--dry-run'), () => writeFile(file, 'petId,quantity\n1,6\n')],
    [() => runBash(t, 'inventory import - <stock.csv', { cwd, env }), () => utimes(file, 0, 0)],
  ] as const) {
    await writeFile(file, 'petId,quantity\n1,5\n')
    const release = await database.hold('SELECT FROM inventory FOR UPDATE')
    const ended = run()
    await waitForLocks(database)
    await change()
    await release()
    const stderr = / changed during the import, so it may be incomplete; nothing was changed\n$/
    t.match(await ended, { code: 3, stdout: '', stderr }, String(change))
    t.equal(await readStock(database), '1,9,sold', String(change))
  }
})

t.test('what a trigger or constraint rejects is a reason, and nothing is written', async (t) => {
  const database = await testDatabase(t, { entries: ['1,9,sold'] })
  await database.query(trigger("RAISE 'at most 500'", AT_COMMIT))
  await database.query('CREATE UNIQUE INDEX ON inventory (quantity) WHERE quantity > 500')
  for (const [csv, reason] of [
    ['petId,quantity\n1,7\n', 'at most 500'],
    ['petId,quantity\n2,700\n3,700\n', 'duplicate key .*already exists.*'],
  ] as const) {
    const said = `^inventory: The database rejects the entries: ${reason}; nothing was changed\\.\n$`
    t.match(await load(t, database.url, csv), { code: 3, stdout: /^$/, stderr: new RegExp(said) })
    t.equal(await readStock(database), '1,9,sold', reason)
  }
})

t.test('an import that the table does not have as the file says is refused', async (t) => {
  const csv = 'petId,quantity,status\n1,5,\n2,5,sold\n3,5,\n100,6,pending\n'
  const on = (event: string): string => `TRIGGER act ${event} ON inventory FOR EACH ROW`
  const skip = 'IF NEW.pet_id IN (3, 100) THEN RETURN NULL; END IF'
  const clamp = "UPDATE inventory SET quantity = 4 WHERE quantity = 5 AND status = 'sold'"
  const add = "INSERT INTO inventory VALUES (8, 1, 'sold') ON CONFLICT DO NOTHING"
  const before = '1,5,available\n2,9,available\n3,9,sold\n7,9,sold'
  const database = await testDatabase(t)
  for (const [code, wrong, options = ''] of [
    [trigger(skip, on('BEFORE INSERT OR UPDATE')), '2, such as petId 3, 100'],
    [trigger("NEW.status := 'sold'"), ''],
    [trigger("NEW.status := 'pending'"), '2, such as petId 2, 3'],
    [trigger(clamp, on('AFTER UPDATE')), '2, such as petId 2, 3'],
    [trigger(clamp, AT_COMMIT), '2, such as petId 2, 3'],
    [trigger('RETURN NULL', on('BEFORE DELETE')), '1, such as petId 7', replace],
    [trigger(add, on('AFTER INSERT')), '1, such as petId 8', replace],
  ] as const) {
    await database.query('DROP FUNCTION IF EXISTS act CASCADE')
    await load(t, database.url, `petId,quantity,status\n${before}`, replace)
    await database.query(code)
    for (const more of ['--dry-run', '']) {
      const outcome = await load(t, database.url, csv, `${options} ${more}`)
      const stderr = ` (${wrong}): a trigger of the table may skip or change rows; nothing was changed\n`
      t.match(outcome, wrong === '' ? { code: 0 } : { code: 3, stdout: /^$/, stderr }, code)
      if (wrong !== '' || more !== '') t.equal(await readStock(database), before, code)
    }
  }
})

t.test('an error of PostgreSQL that nobody foresaw is a sentence, and so is a folder', async (t) => {
  const database = await testDatabase(t)
  await database.query('ALTER TABLE inventory ALTER pet_id ADD GENERATED ALWAYS AS IDENTITY')
  const stderr =
    /^inventory: PostgreSQL rejects a statement: cannot insert a non-DEFAULT value into column "pet_id" \(.*\n$/
  t.match(await load(t, database.url, 'petId,quantity\n1,5\n'), { code: 1, stderr })
  const folder = { code: 1, stderr: /^inventory: EISDIR: .*\.\n$/ }
  t.match(await inventory(t, database.url, 'import .'), folder)
})

const csv = 'petId,quantity,status\n1,5,available\n20,600,sold\n3,7,\n'

/** Every pet that the whole input has but one, and two that it does not. */
const before = '1,9,sold\n2,9,sold\n3,9,sold\n4,9,sold'

const filled = (t: Test) => testDatabase(t, { entries: before.split('\n') })

t.test('standard input is imported with the right number of rows, and no other pipe is', async (t) => {
  const database = await filled(t)
  // Google Sheets writes no end of the last line.
  const options = {
    cwd: await temporaryFolder(t, { 'stock.csv': csv.trimEnd() }),
    env: { DATABASE_URL: database.url },
  }
  const bash = (line: string) => runBash(t, line, options)
  for (const line of ['cat stock.csv | inventory import -', 'inventory import <(cat stock.csv)']) {
    const stderr = /^inventory: Nothing was done, .*\n {2}awk 1 .* inventory import - --rows .*\n$/m
    t.match(await bash(line), { code: 2, stderr }, line)
  }
  t.equal(await readStock(database), before)
  const piped = `awk 1 stock.csv | inventory import - --rows "$(${COUNT_ROWS} stock.csv)"`
  t.match(await bash(piped), { code: 0, stdout: '1 added, 2 changed, 0 unchanged\n' })
  t.equal(await readStock(database), '1,5,available\n2,9,sold\n3,7,sold\n4,9,sold\n20,600,sold')
  const unchanged = { code: 0, stdout: '0 added, 0 changed, 3 unchanged\n' }
  t.match(await bash('inventory import - <stock.csv'), unchanged, 'a file ends where it ends')
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
  for (const [index, cut] of [0, 1, 7, 21, 22, 23, last, last + 1, last + 3, csv.length - 1].entries()) {
    const mode = index % 2 === 0 ? 'upsert' : 'replace'
    const outcome = await importing(csv.slice(0, cut), 3, `--allow-removals --mode ${mode}`)
    t.match(outcome, { code: 3, stdout: '', stderr: /; nothing was changed\n$/ }, `${cut}`)
  }
  const open =
    /^inventory: standard input does not end in a newline.*"awk 1 FILE", and count its rows with "awk /
  t.match(await importing(csv.slice(0, -1), 3), { stderr: open })
  const count =
    /has 3 rows instead of the expected 2; count its rows with .*"iconv .*"tr .*; nothing was changed\n/
  t.match(await importing(csv, 2), { code: 3, stderr: count })
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
