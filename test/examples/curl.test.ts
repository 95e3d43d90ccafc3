import t from 'tap'
import { callsWell, exampleOf } from '../support/examples.ts'

t.test('the example with curl', async (t) => {
  await callsWell(t, await exampleOf(t, 'examples/curl/inventory.sh', []))
})
