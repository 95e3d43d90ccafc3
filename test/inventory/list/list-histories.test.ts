import t from 'tap'
import { longLimits, startApp } from '../../support/app.ts'
import { hold } from '../../support/on-server.ts'
import { startOwnServer } from '../../support/own-server.ts'
import { compareLists, FIRST_ENTRIES, steps } from './histories.ts'

t.test('every list is what SQL says, in every process, through any history of the table', async (t) => {
  const server = await startOwnServer(t, { max_prepared_transactions: '20' })
  await server.query(FIRST_ENTRIES)
  const changed = await compareLists(t, server, steps)
  t.ok(changed > steps / 10, `${changed} of ${steps} lists were made from changes`)
})

t.test('a list without a commit since the last one needs no lock', async (t) => {
  // Nobody else commits here.
  const server = await startOwnServer(t, { autovacuum: 'off' })
  await server.query(FIRST_ENTRIES)
  const { send } = await startApp(t, server.url, { timings: { lists: { ...longLimits.lists, lock: 300 } } })
  const list = (): ReturnType<typeof send> => send('GET', '/v1/inventory')
  t.equal((await list()).status, 200)
  await server.query('UPDATE inventory SET quantity = 7777 WHERE pet_id = 1')
  t.match(await list(), { status: 200, text: '"quantity":7777' })
  await hold(t, server.superuserUrl, 'LOCK TABLE inventory')
  t.equal((await list()).status, 503, 'changes are read at once')
  t.match(await list(), { status: 200, text: '"quantity":7777' })
})
