/**
 * Runs the tests of a kind, which is the first argument: `test` for those that need only Node, `fault` for those that need other
 * programs, and `browser`. Further arguments name files or folders; those that begin with a dash go to tap. It installs nothing:
 * where something is missing, it says what, and fails.
 */
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { missingFor } from './faults/needs.ts'
import { runTap } from './support/run-tap.ts'

const [kind, ...args] = process.argv.slice(2)
const names = args.filter((arg) => !arg.startsWith('-')).map((name) => name.replace(/\/$/, ''))
const files = (await readdir('test', { recursive: true }))
  .filter((file) => file.endsWith(`.${kind}.ts`))
  .map((file) => path.join('test', file))
const chosen =
  names.length === 0
    ? files
    : names.flatMap((name) => {
        const found = files.filter(
          (file) => file === name || file.startsWith(`${name}/`) || path.basename(file) === name,
        )
        if (found.length === 0) throw new Error(`There is no test of the kind "${kind}" at ${name}.`)
        return found
      })
const missing = await missingFor(chosen.map((file) => path.basename(file)))
if (missing.length > 0) {
  console.error(`These tests need what is not here:\n${missing.map((line) => `  ${line}`).join('\n')}`)
  process.exitCode = 1
} else {
  // What other programs break must not fail another test.
  const options = kind === 'test' ? [] : ['--jobs=1', '--timeout=900']
  await runTap(chosen, [...options, ...args.filter((arg) => arg.startsWith('-'))])
}
