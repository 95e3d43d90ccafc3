import t from 'tap'
import { callsWell } from '../support/examples.ts'

t.test('the example in JavaScript', async (t) => {
  await callsWell(t, process.execPath, ['examples/javascript/inventory.js'])
})
