import path from 'node:path'
import t from 'tap'
import { callsWell, examples } from '../examples/calls.ts'
import { run, temporaryFolder } from '../support/program.ts'

const go = path.join(await temporaryFolder(t), 'inventory')
await run(t, 'go', ['build', '-o', go, 'examples/go/inventory.go']).ended

const all = { ...examples, Python: ['python3', 'examples/python/inventory.py'], Go: [go] } as const
for (const [language, command] of Object.entries(all))
  t.test(`the example in ${language}`, (t) => callsWell(t, command))
