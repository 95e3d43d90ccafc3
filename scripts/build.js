/**
 * Compiles src to dist if anything has changed since the last time, and with the argument `tests`, the tests to .test-build as
 * well. Plain JavaScript, because it runs before every start.
 */
import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
} from 'node:fs'
import path from 'node:path'
import { requireSupportedNode } from '../src/process/node-version.js'

requireSupportedNode()

const PROGRAMS = {
  sources: ['src'],
  output: 'dist',
  project: 'tsconfig.build.json',
  sourceOf: (module) => `src/${module}`,
}

/** The tests are only translated, file by file: `npm run typecheck` finds their errors. */
const TESTS = {
  sources: ['test', 'examples'],
  output: '.test-build',
  project: 'tsconfig.test.json',
  sourceOf: (module) => module,
}

/**
 * The file with which tsc compiles incrementally. Its time is when the last compilation without errors began.
 */
function stampOf({ output }) {
  return `${output}/.tsbuildinfo`
}

/** Removing a file from a folder changes the folder. */
function hasChanged(target) {
  if (!existsSync(stampOf(target))) return true
  const { mtimeMs: compiledAt } = statSync(stampOf(target))
  const files = target.sources.flatMap((folder) =>
    readdirSync(folder, { recursive: true }).map((name) => path.join(folder, name)),
  )
  return ['package-lock.json', 'tsconfig.json', target.project, ...target.sources, ...files].some(
    (file) => statSync(file).mtimeMs > compiledAt,
  )
}

/** Returns the exit code. */
function compile(target) {
  const startedAt = new Date()
  const output = path.resolve(target.output)
  mkdirSync(output, { recursive: true })
  const tsc = ['node_modules/typescript/bin/tsc', '--project', target.project]
  const { status } = spawnSync(process.execPath, tsc, { stdio: 'inherit' })
  if (status !== 0) {
    rmSync(stampOf(target), { force: true })
    return 1
  }
  for (const name of readdirSync(output, { recursive: true })) {
    const [, module] = /^(.+)\.js(\.map)?$/.exec(name) ?? []
    if (module === undefined) continue
    const source = target.sourceOf(module)
    if (!existsSync(`${source}.ts`) && !existsSync(`${source}.js`)) rmSync(path.join(output, name))
  }
  if (target === PROGRAMS) chmodSync('dist/cli.js', 0o755)
  // Node resolves the link, so the tests import the modules of dist.
  else if (!existsSync(`${output}/src`)) symlinkSync('../dist', `${output}/src`, 'junction')
  utimesSync(stampOf(target), startedAt, startedAt)
  return 0
}

for (const target of process.argv[2] === 'tests' ? [PROGRAMS, TESTS] : [PROGRAMS]) {
  if (!hasChanged(target)) continue
  console.error(`Compiling ${target.sources.join(' and ')} to ${target.output}…`)
  process.exitCode = compile(target)
  if (process.exitCode !== 0) break
}
