/**
 * Runs the tests of a kind, which is the first argument: `test` for those that need only Node, `nightly` for those of them that take
 * too long for every change, `fault` for those that need other programs, and `browser`. Further arguments name files or folders.
 */
import { readdir, stat } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import path from 'node:path'
import { chooseBalancer } from './support/containers.ts'
import { runFiles } from './support/run-files.ts'

const [kind, ...args] = process.argv.slice(2)
const names = args.map((name) => name.replace(/\/$/, ''))
const files = (await readdir('test', { recursive: true }))
  .filter((file) => file.endsWith(`.${kind}.ts`))
  .map((file) => path.join('test', file))
const isNamed = (file: string, name: string): boolean =>
  file === name || file.startsWith(`${name}/`) || path.basename(file) === name
const unknown = names.filter((name) => !files.some((file) => isNamed(file, name)))
if (unknown.length > 0) throw new Error(`There is no test ${unknown.join(' or ')}`)
const chosen = files.filter((file) => names.length === 0 || names.some((name) => isNamed(file, name)))
// The largest first, as they take the longest: one that began last would run alone.
const sizes = new Map(await Promise.all(chosen.map(async (file) => [file, (await stat(file)).size] as const)))
chosen.sort((one, other) => (sizes.get(other) ?? 0) - (sizes.get(one) ?? 0))
// Debian puts HAProxy and PgBouncer into a folder that only root has on its PATH.
process.env['PATH'] += `${path.delimiter}/usr/sbin`
// Many of the tests wait for time to pass; but what other programs break must not fail another one.
const jobs = kind === 'test' || kind === 'nightly' ? 3 * availableParallelism() : 1
await runFiles(chosen, jobs, kind === 'fault' ? await chooseBalancer() : {})
