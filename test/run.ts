/** Runs the tests that need only Node. Arguments go to tap: `npm test -- test/http/errors.test.ts`. */
import { runTap } from './support/run-tap.ts'

await runTap(process.argv.slice(2))
