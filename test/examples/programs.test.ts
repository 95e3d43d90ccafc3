import t from 'tap'
import { callsWell, examples } from './calls.ts'

/** That they also retry and give up as they should takes longer: see test/faults/examples.fault.ts. */
for (const [language, command] of Object.entries(examples))
  t.test(`the example in ${language}`, (t) => callsWell(t, command, { isQuick: true }))
