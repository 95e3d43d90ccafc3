import t from 'tap'
import { asksAgain, callsExactly, exampleOf } from '../support/examples.ts'

t.test('the example in JavaScript calls the service', async (t) => {
  const example = await exampleOf(t, process.execPath, ['examples/javascript/inventory.js'])
  await callsExactly(t, example)
  await asksAgain(t, example)
})
