import t from 'tap'
import { callsWell, exampleOf } from '../support/examples.ts'

t.test('the example in JavaScript', async (t) => {
  await callsWell(t, await exampleOf(t, process.execPath, ['examples/javascript/inventory.js']))
})
