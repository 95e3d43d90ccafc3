import { createRequire } from 'node:module'
import path from 'node:path'
import t from 'tap'
import { callsWell } from '../examples/calls.ts'
import { run, temporaryFolder } from '../support/program.ts'

const tsx = createRequire(import.meta.url).resolve('tsx/cli')
const go = path.join(await temporaryFolder(t), 'inventory')
await run(t, 'go', ['build', '-o', go, 'examples/go/inventory.go']).ended

const examples = {
  curl: ['examples/curl/inventory.sh'],
  TypeScript: [process.execPath, tsx, 'examples/typescript/inventory.ts'],
  Python: ['python3', 'examples/python/inventory.py'],
  Go: [go],
} as const

for (const [language, command] of Object.entries(examples))
  t.test(`the example in ${language}`, (t) => callsWell(t, command))
