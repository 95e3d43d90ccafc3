import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { inventory } from '../support/command.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { eventually, until } from '../support/eventually.ts'
import { startProgram, temporaryFolder } from '../support/program.ts'

t.test('low lists the entries below a limit, the lowest first, and has its own exit code', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [
    ['9007199254740993', 4, 'available'],
    ['1', 5, 'available'],
    ['2', 0, 'sold'],
    ['3', 4, 'pending'],
  ])
  t.match(await inventory(t, database.url, 'low', '--below', '5'), {
    code: 7,
    stderr: '',
    stdout: /^PET ID +QUANTITY +STATUS\n2 +0 +sold\n3 +4 +pending\n9007199254740993 +4 +available\n$/,
  })
  const json = await inventory(t, database.url, 'low', '--below', '5', '--status', 'available', '--json')
  t.strictSame(
    [json.code, json.stdout],
    [7, '[{"petId":9007199254740993,"quantity":4,"status":"available"}]\n'],
  )
  t.match(await inventory(t, database.url, 'low', '--below', '4', '--status', 'available'), {
    code: 0,
    stdout: '',
    stderr: 'No entry has a quantity below 4.\n',
  })
  t.match(await inventory(t, database.url, 'low', '--below', '4', '--status', 'available', '--json'), {
    code: 0,
    stdout: '[]\n',
  })
  for (const args of [
    [],
    ['--below', '0'],
    ['--below', '2147483648'],
    ['--below', '5', '--status', 'eaten'],
  ]) {
    t.equal((await inventory(t, database.url, 'low', ...args)).code, 2, args.join(' '))
  }
})

t.test('the JSON of low is complete for any number of entries', async (t) => {
  const database = await testDatabase(t)
  await database.query("INSERT INTO inventory SELECT id, 0, 'sold' FROM generate_series(1, 2500) AS id")
  const { stdout } = await inventory(t, database.url, 'low', '--below', '1', '--json')
  const found: { petId: number }[] = JSON.parse(stdout)
  t.strictSame(
    found.map(({ petId }) => petId),
    Array.from({ length: 2500 }, (_, index) => index + 1),
  )
})

t.test('a signal ends a command whose output nobody reads', async (t) => {
  const database = await testDatabase(t)
  await database.query("INSERT INTO inventory SELECT id, 0, 'sold' FROM generate_series(1, 100000) AS id")
  const file = path.join(await temporaryFolder(t), 'stock.csv')
  const rows = Array.from({ length: 100_000 }, (_, index) => `${index + 1},1\n`)
  await writeFile(file, `petId,quantity\n${rows.join('')}`)
  for (const args of [['low', '--below', '1'], ['low', '--below', '1', '--json'], ['export']]) {
    const program = await startProgram(t, 'cli', { args, env: { DATABASE_URL: database.url } })
    const { stdout } = program.process
    if (stdout === null) throw new Error('it has no output')
    stdout.pause()
    await eventually('output', async () => (stdout.readableLength > 0 ? true : undefined))
    program.process.kill('SIGTERM')
    await until('its end', () => program.process.exitCode !== null)
    stdout.resume()
    t.match(await program.ended, { code: 143, stderr: 'inventory: interrupted; nothing was changed\n' })
  }
})
