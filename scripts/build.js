/** Compiles src to dist if anything has changed since the last time. Plain JavaScript, because it runs before every start. */
import { spawnSync } from 'node:child_process'
import {
  accessSync,
  chmodSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  rmSync,
  statSync,
  utimesSync,
} from 'node:fs'
import path from 'node:path'

/** The file with which tsc compiles incrementally. Its time is when the last compilation without errors began. */
const STAMP = 'dist/.tsbuildinfo'

/** Removing a file from a folder changes the folder. */
function hasChanged() {
  if (!existsSync(STAMP)) return true
  const { mtimeMs: compiledAt } = statSync(STAMP)
  const sources = readdirSync('src', { recursive: true }).map((name) => path.join('src', name))
  return ['package-lock.json', 'tsconfig.json', 'tsconfig.build.json', 'src', ...sources].some(
    (file) => statSync(file).mtimeMs > compiledAt,
  )
}

/** Returns the exit code. Throws if it may not write. */
function compile() {
  const startedAt = new Date()
  const dist = path.resolve('dist')
  mkdirSync(dist, { recursive: true })
  accessSync(dist, constants.W_OK)
  const tsc = ['node_modules/typescript/bin/tsc', '--project', 'tsconfig.build.json']
  const { status } = spawnSync(process.execPath, tsc, { stdio: 'inherit' })
  if (status !== 0) {
    rmSync(STAMP, { force: true })
    return 1
  }
  for (const name of readdirSync(dist, { recursive: true })) {
    const [, module] = /^(.+)\.js(\.map)?$/.exec(name) ?? []
    if (module !== undefined && !existsSync(`src/${module}.ts`)) rmSync(path.join(dist, name))
  }
  chmodSync('dist/cli.js', 0o755)
  utimesSync(STAMP, startedAt, startedAt)
  return 0
}

if (hasChanged()) {
  console.error('Compiling src to dist…')
  try {
    process.exitCode = compile()
  } catch ({ message }) {
    console.error(
      `Cannot compile: ${message}. Run "npm run build" as a user who may write there. Afterwards, any user can run ` +
        '"node dist/server.js".',
    )
    process.exitCode = 1
  }
}
