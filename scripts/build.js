/**
 * Translates src to dist, file by file, if dist is of other sources: `npm run typecheck` finds the errors of types, in four times as
 * long. Plain JavaScript, because it runs before every start: scripts of npm that run before others do not run where
 * `ignore-scripts` is set.
 */
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  accessSync,
  chmodSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import path from 'node:path'
import { requireSupportedNode } from '../src/process/node-version.js'

const TSC = 'node_modules/typescript/bin/tsc'

/**
 * Compiles the sources of a target unless its output is of these sources, and exits with one sentence if that is impossible.
 *
 * @param target the folders of its sources, that of its output, its tsconfig, what returns the path of the source of a module, both
 *   without extensions, and what to do when it is compiled
 */
export function compile(target) {
  try {
    compileChanged(target)
  } catch (error) {
    if (!('syscall' in error)) throw error
    fail(
      `${target.output} cannot be written: ${error.message}. Run "npm run build" as the owner of this folder`,
    )
  }
}

function compileChanged({ sources, output, project, sourceOf, finish }) {
  const stamp = `${output}/.sources`
  const digest = digestOf(['package-lock.json', 'tsconfig.json', project, ...sources.flatMap(filesBelow)])
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === digest) return
  if (!existsSync(TSC))
    fail(
      `${output} is missing or of other sources, and TypeScript is not installed to compile them. Run "npm ci --include=dev"`,
    )
  console.error(`Compiling ${sources.join(' and ')} to ${output}…`)
  mkdirSync(output, { recursive: true })
  accessSync(output, constants.W_OK)
  rmSync(stamp, { force: true })
  const { status } = spawnSync(process.execPath, [TSC, '--project', project], { stdio: 'inherit' })
  if (status !== 0) process.exit(1)
  for (const name of readdirSync(output, { recursive: true })) {
    const [, module] = /^(.+)\.js(\.map)?$/.exec(name) ?? []
    if (module === undefined) continue
    const source = sourceOf(module)
    if (!existsSync(`${source}.ts`) && !existsSync(`${source}.js`)) rmSync(path.join(output, name))
  }
  finish()
  writeFileSync(stamp, digest)
}

/** Their times would not do: an archive or a copy may bring newer sources with older times. */
function digestOf(files) {
  const hash = createHash('sha256')
  for (const file of files) {
    const content = readFileSync(file)
    hash.update(`${file} ${content.length}\n`).update(content)
  }
  return hash.digest('hex')
}

function filesBelow(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => path.join(parentPath, name))
    .sort()
}

function fail(message) {
  console.error(`petstore-inventory: ${message}.`)
  process.exit(1)
}

requireSupportedNode()
compile({
  sources: ['src'],
  output: 'dist',
  project: 'tsconfig.build.json',
  sourceOf: (module) => `src/${module}`,
  finish: () => chmodSync('dist/cli.js', 0o755),
})
