import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { cp, mkdir, readFile, rename, rm, symlink, utimes, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { temporaryFolder } from '../support/program.ts'

t.test('npm scripts compile what has changed, and only then, without any other script', async (t) => {
  const cwd = await temporaryFolder(t)
  const inFolder = (name: string): string => path.join(cwd, name)
  const migrate = () => {
    const args = ['run', '--silent', '--ignore-scripts', 'migrate', 'up']
    const { status, stdout, stderr } = spawnSync('npm', args, { cwd, encoding: 'utf8' })
    return { status, stdout, stderr }
  }
  const writeProgram = (prints: string): Promise<void> =>
    writeFile(inFolder('src/cli.ts'), `console.log('${prints}', ...process.argv.slice(2))\n`)
  const upToDate = (prints: string) => ({ status: 0, stdout: `${prints} migrate up\n`, stderr: '' })
  const compiled = (prints: string) => ({ ...upToDate(prints), stderr: 'Compiling src to dist…\n' })
  const files = ['scripts/build.js', 'scripts/run.cjs', 'src/process/node-version.js', 'tsconfig.build.json']
  for (const file of [...files, 'package.json', 'package-lock.json']) await cp(file, inFolder(file))
  // The compiler is faster without Node's types.
  await writeFile(
    inFolder('tsconfig.json'),
    '{ "compilerOptions": { "types": [], "lib": ["es5", "dom"], "target": "es2023", "noCheck": true } }',
  )
  await symlink(path.resolve('node_modules'), inFolder('node_modules'))
  await mkdir(inFolder('src/folder'), { recursive: true })
  await writeProgram('first')
  await writeFile(inFolder('src/folder/removed.ts'), 'export {}\n')

  t.strictSame(migrate(), compiled('first'))
  t.ok(existsSync(inFolder('dist/folder/removed.js')))
  t.strictSame(migrate(), upToDate('first'))

  await rm(inFolder('src/folder/removed.ts'))
  t.strictSame(migrate(), compiled('first'), 'a removed source')
  t.notOk(existsSync(inFolder('dist/folder/removed.js')))

  await writeProgram('second')
  await utimes(inFolder('src/cli.ts'), 0, 0)
  t.strictSame(migrate(), compiled('second'), 'another source with an older time, as an archive has it')
  await writeProgram('second')
  t.strictSame(migrate(), upToDate('second'), 'the same source, written again')

  await rename(inFolder('node_modules'), inFolder('omitted'))
  t.strictSame(migrate(), upToDate('second'), 'without the packages for development')
  await writeProgram('third')
  const outdated = /^petstore-inventory: dist is .* not installed .* Run "npm ci --include=dev"\.\n$/
  t.match(migrate(), { status: 1, stdout: '', stderr: outdated })
  await rename(inFolder('omitted'), inFolder('node_modules'))
  await rm(inFolder('dist'), { recursive: true })
  // Root can write to every folder, but not below a file.
  await writeFile(inFolder('dist'), '')
  const unwritable = /^Compiling.*\n.*: dist cannot be written: E.* as the owner of this folder\.\n$/
  t.match(migrate(), { status: 1, stderr: unwritable })
  await rm(inFolder('dist'))
  await writeFile(inFolder('src/cli.ts'), "const wrong: number = 'text\n")
  for (const attempt of ['first', 'second'])
    t.match(migrate(), { status: 1, stdout: /TS1002/, stderr: /^Compiling/ }, `the ${attempt} build`)
})

t.test('no npm script needs one that runs before it', async (t) => {
  const { scripts }: { scripts: Record<string, string> } = JSON.parse(await readFile('package.json', 'utf8'))
  const hooks = Object.keys(scripts).flatMap((name) => [`pre${name}`, `post${name}`])
  t.notOk(hooks.some((name) => name in scripts))
})
