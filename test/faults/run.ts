/**
 * Runs the tests that need programs of other projects, such as a proxy: all of them, or those that are named. It
 * installs nothing. Where something is missing it says what, and fails.
 */
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { runTap } from '../support/run-tap.ts'
import { missingFor } from './needs.ts'

const SUFFIX = '.fault.ts'
const folder = 'test/faults'

const given = process.argv.slice(2).map((file) => path.basename(file))
const files = given.length > 0 ? given : (await readdir(folder)).filter((file) => file.endsWith(SUFFIX))
const missing = await missingFor(files)
if (missing.length > 0) {
  console.error(`These tests need what is not here:\n${missing.map((line) => `  ${line}`).join('\n')}`)
  process.exitCode = 1
} else {
  // One after the other: what one breaks must not fail another.
  await runTap(
    files.map((file) => path.join(folder, file)),
    ['--jobs=1', '--timeout=900'],
  )
}
