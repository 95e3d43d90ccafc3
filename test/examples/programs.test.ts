import { createRequire } from 'node:module'
import t from 'tap'
import { callsWell } from './calls.ts'

const tsx = createRequire(import.meta.url).resolve('tsx/cli')

/** That they also retry and give up as they should takes longer: see test/faults/examples.fault.ts. */
const examples = {
  curl: ['examples/curl/inventory.sh'],
  TypeScript: [process.execPath, tsx, 'examples/typescript/inventory.ts'],
} as const

for (const [language, command] of Object.entries(examples))
  t.test(`the example in ${language}`, (t) => callsWell(t, command, { isQuick: true }))
