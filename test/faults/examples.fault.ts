import t from 'tap'
import { asksAgain, callsExactly, exampleOf } from '../support/examples.ts'

for (const [language, command, ...args] of [
  ['curl', 'examples/curl/inventory.sh'],
  ['Python', 'python3', 'examples/python/inventory.py'],
  ['Go', 'go', 'run', 'examples/go/inventory.go'],
] as const) {
  t.test(`the example in ${language} calls the service`, async (t) => {
    const example = await exampleOf(t, command, args)
    await callsExactly(t, example)
    await asksAgain(t, example)
  })
}
