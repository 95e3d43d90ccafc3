import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { inTransaction } from '../../src/database/admin/transaction.ts'
import { startRecording } from '../../src/inventory/history/recording.ts'
import { startApp } from '../support/app.ts'
import { inventory } from '../support/command.ts'
import { readStock, type TestDatabase, testDatabase } from '../support/database.ts'
import { countingFilter, startRelay } from '../support/relay.ts'

/** Sends every request and runs every command, on the database at `url`, and returns what they answer. */
async function useAll(t: Test, database: TestDatabase, url: string): Promise<unknown> {
  const answers: unknown[] = []
  const run = async (command: string, input = ''): Promise<void> => {
    const { code, stdout, stderr } = await inventory(t, url, command, { input })
    const changing = /\S+Z\b|[\w-]{40,}|[0-9a-f]{12}|127\.\S+|test_\w+/g
    answers.push([command, code, `${stdout}${stderr}`.replace(changing, '?').replace(/ +/g, ' ')])
  }
  for (const command of ['create --name ops', 'rotate ops', 'create --name old', 'revoke old', 'list'])
    await run(`keys ${command}`)
  const header = 'petId,quantity,status\n'
  const lines = Array.from({ length: 40 }, (_, index) => `${index + 1},0,sold\n`).join('')
  await run('import - --rows 40', `${header}${lines}`)
  const { send, update, updateAll, metric } = await startApp(t, url)
  const list = async (): Promise<void> => {
    const { status, text } = await send('GET', '/v1/inventory')
    answers.push([status, text])
  }
  const change = async (quantity: number): Promise<void> => {
    for (const { status, text } of [
      await update(1, quantity),
      ...(await updateAll(9, quantity + 1)),
      await update(1, 5, { 'if-match': `"${quantity + 1}-sold"` }),
      await update(1, 6, { 'if-match': '"7-sold"' }),
      await update(99, 1),
    ])
      answers.push([status, text])
    await list()
    const release = await database.hold('SELECT FROM inventory WHERE pet_id = 1 FOR UPDATE')
    const locked = update(1, quantity + 2)
    // Once the locked one has waited for its limit, statements skip locked rows.
    for (let round = 0; round < 4; round++) {
      answers.push((await updateAll(20, quantity + 3, 2)).map(({ status }) => status))
      await setTimeout(150)
    }
    await release()
    answers.push((await locked).status)
    await list()
  }
  await list()
  await change(10)
  await inTransaction({ url }, startRecording)
  await change(20)
  answers.push((await send('GET', '/readyz')).text, await metric('inventory_entries'))
  const replaced = `${header}1,30,available\n2,31,\n50,1,pending\n`
  await run('import - --rows 3 --mode replace --allow-removals', replaced)
  await list()
  for (const command of ['export', 'history --by nobody', 'history 50 --json', 'status --json'])
    await run(command)
  await database.query("UPDATE inventory_history SET changed_at = now() - interval '2 d' WHERE pet_id > 10")
  for (const command of ['prune --keep 1d', '50 --since 1d', 'off']) await run(`history ${command}`)
  return [...answers, await readStock(database)]
}

t.test("columns that an operator adds never change what the service's statements mean", async (t) => {
  const plain = await testDatabase(t)
  const [functions] = await plain.query(
    "SELECT string_agg(prosrc, ' ') FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
  )
  let statements = JSON.stringify(functions)
  const relay = await startRelay(t, plain.url, {
    towardsDatabase: (bytes) => {
      statements += bytes.toString('latin1')
      return bytes
    },
  })
  const expected = await useAll(t, plain, relay.url)

  const extended = await testDatabase(t)
  const words = statements.match(/\b[a-z_]\w{0,62}/gi) ?? []
  // Names without quotes are in lower case for PostgreSQL; those in quotes are not in upper case alone.
  const names = new Set(words.flatMap((word) => [word.toLowerCase(), /[a-z]/.test(word) ? word : 'id']))
  for (const name of ['ctid', 'xmin', 'xmax', 'cmin', 'cmax', 'tableoid']) names.delete(name)
  const columns = Array.from(names, (name) => `ADD IF NOT EXISTS "${name}" text DEFAULT '1'`).join(', ')
  for (const table of ['inventory', 'inventory_history', 'api_keys'])
    await extended.query(`ALTER TABLE ${table} ${columns}`)
  // A batch that skips locked rows is sent individually if it fails, so its answers do not tell.
  const ambiguous = countingFilter('C42702\0')
  const watched = await startRelay(t, extended.url, { towardsClient: ambiguous.filter })
  t.strictSame(await useAll(t, extended, watched.url), expected)
  t.equal(ambiguous.count, 0, 'no name is ambiguous')
})
