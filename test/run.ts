/** Runs the tests that need only Node: all, or those in the named files and folders. Options go to tap. */
import { readdir, stat } from 'node:fs/promises'
import path from 'node:path'
import { runTap } from './support/run-tap.ts'

const args = process.argv.slice(2)
const named = args.filter((arg) => !arg.startsWith('-'))
const files: string[] = []
for (const name of named.length > 0 ? named : ['test']) {
  const isFolder = (await stat(name)).isDirectory()
  const found = isFolder
    ? (await readdir(name, { recursive: true })).map((file) => path.join(name, file))
    : [name]
  files.push(...found.filter((file) => !isFolder || file.endsWith('.test.ts')))
}
await runTap(
  files,
  args.filter((arg) => arg.startsWith('-')),
)
