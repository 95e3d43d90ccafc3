import { execFileSync } from 'node:child_process'
import { cp, mkdir, rename, symlink, writeFile } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { run, temporaryFolder } from '../support/program.ts'

const COMMAND = "#!/usr/bin/env node\nconsole.log('command', process.argv.slice(2).join(' '))\n"
const SERVER = `process.on('SIGTERM', () => process.exit(7))
  setInterval(() => {}, 60_000)
  console.log('process', process.pid)`

t.test('npm scripts compile what they run, without scripts that run before them', async (t) => {
  // A checkout whose two programs print a line, and whose server runs until SIGTERM.
  const cwd = path.join(await temporaryFolder(t), 'with a space')
  await mkdir(path.join(cwd, 'src'), { recursive: true })
  for (const name of ['package.json', 'tsconfig.json', 'tsconfig.build.json'])
    await cp(name, path.join(cwd, name))
  await writeFile(path.join(cwd, 'src', 'server.ts'), SERVER)
  await writeFile(path.join(cwd, 'src', 'cli.ts'), COMMAND)
  await symlink(path.resolve('node_modules'), path.join(cwd, 'node_modules'))
  // The scripts that run this test put the programs of this checkout on the PATH.
  const PATH = process.env['PATH']?.replaceAll(/[^:]*node_modules\/\.bin:/g, '')
  const env = { ...process.env, PATH }
  const npm = (...args: string[]) => run(t, 'npm', ['run', '--ignore-scripts', ...args], { cwd, env })

  t.match(await npm('migrate', '--', 'up').ended, { code: 0, stdout: /^command migrate up$/m, stderr: '' })

  t.match(await npm('build').ended, { code: 0 })
  t.equal(execFileSync('dist/cli.js', ['as a program'], { cwd, encoding: 'utf8' }), 'command as a program\n')

  const servers = [npm('start'), npm('start')]
  for (const server of servers) {
    const [, pid] = await server.output(/^process (\d+)$/m)
    server.process.kill('SIGTERM')
    // npm forwards the signal, and exits with the code of the server.
    t.match(await server.ended, { code: 7 })
    t.throws(() => process.kill(Number(pid), 0), { code: 'ESRCH' })
  }

  await rename(path.join(cwd, 'node_modules'), path.join(cwd, 'omitted'))
  t.match(await npm('start').ended, { code: 127, stderr: /^sh: .*\btsc\b.*not found\n$/ })
})
