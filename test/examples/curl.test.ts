import t from 'tap'
import { callsWell } from '../support/examples.ts'

t.test('the example with curl', async (t) => {
  await callsWell(t, 'examples/curl/inventory.sh', [])
})
