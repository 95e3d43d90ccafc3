import t from 'tap'
import { startOwnServer } from '../../support/own-server.ts'
import { compareLists, FIRST_ENTRIES, steps } from './histories.ts'

t.test('every list is what SQL says, in every process, through any history of the table', async (t) => {
  const server = await startOwnServer(t, { max_prepared_transactions: '20' })
  await server.query(FIRST_ENTRIES)
  const changed = await compareLists(t, server, steps)
  t.ok(changed > steps / 10, `${changed} of ${steps} lists were made from changes`)
})
