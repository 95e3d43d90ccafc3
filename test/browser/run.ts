/** Runs the tests that drive a browser. It downloads none: where there is no Chromium or Chrome, it says so and fails. */
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { runTap } from '../support/run-tap.ts'
import { findChromium, MISSING } from './chromium.ts'

const folder = 'test/browser'

if ((await findChromium()) === undefined) {
  console.error(MISSING)
  process.exitCode = 1
} else {
  const files = (await readdir(folder)).filter((file) => file.endsWith('.browser.ts'))
  await runTap(
    files.map((file) => path.join(folder, file)),
    ['--jobs=1'],
  )
}
