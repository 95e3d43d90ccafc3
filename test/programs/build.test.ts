import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { cp, mkdir, rm, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { temporaryFolder } from '../support/program.ts'

t.test('the build compiles what has changed, and only then', async (t) => {
  const cwd = await temporaryFolder(t)
  const inFolder = (name: string): string => path.join(cwd, name)
  const build = (): { status: number | null; output: string } => {
    const { status, stdout, stderr } = spawnSync(process.execPath, ['scripts/build.js'], {
      cwd,
      encoding: 'utf8',
    })
    return { status, output: stdout + stderr }
  }
  const writeProgram = (prints: string): Promise<void> =>
    writeFile(inFolder('src/cli.ts'), `#!/bin/echo ${prints}\nexport {}\n`)
  const printed = (): string => spawnSync(inFolder('dist/cli.js'), { encoding: 'utf8' }).stdout
  const compiled = { status: 0, output: 'Compiling src to dist…\n' }
  const upToDate = { status: 0, output: '' }
  const files = ['scripts/build.js', 'src/process/node-version.js', 'tsconfig.build.json']
  for (const file of [...files, 'package.json', 'package-lock.json']) await cp(file, inFolder(file))
  // The compiler is faster without Node's types.
  await writeFile(
    inFolder('tsconfig.json'),
    '{ "compilerOptions": { "types": [], "lib": ["es5"], "target": "es2023" } }',
  )
  await symlink(path.resolve('node_modules'), inFolder('node_modules'))
  await mkdir(inFolder('src/folder'), { recursive: true })
  await writeProgram('first')
  await writeFile(inFolder('src/folder/removed.ts'), 'export {}\n')

  t.strictSame(build(), compiled)
  t.match(printed(), /^first /)
  t.ok(existsSync(inFolder('dist/folder/removed.js')))
  t.strictSame(build(), upToDate)

  await rm(inFolder('src/folder/removed.ts'))
  t.strictSame(build(), compiled, 'a removed source')
  t.notOk(existsSync(inFolder('dist/folder/removed.js')))

  await writeProgram('second')
  t.strictSame(build(), compiled, 'a changed source')
  t.match(printed(), /^second /)

  await writeProgram('second')
  t.strictSame(build(), compiled, 'the same source, written again')
  t.strictSame(build(), upToDate)

  await writeFile(inFolder('src/cli.ts'), "const wrong: number = 'text'\n")
  for (const attempt of ['first', 'second'])
    t.match(build(), { status: 1, output: /TS2322/ }, `the ${attempt} build of an error`)
})
