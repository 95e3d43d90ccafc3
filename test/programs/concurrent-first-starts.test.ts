import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdir, readdir, readFile, stat } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { removeUnfinished } from '../../src/local/create-once.ts'
import { callerOf } from '../support/http.ts'
import { portOf, startProgram, temporaryFolder } from '../support/program.ts'

t.test('one of two concurrent first starts serves, and the other one reports it', async (t) => {
  const cwd = await temporaryFolder(t)
  await chmod(cwd, 0o755)
  const servers = await Promise.all(
    Array.from({ length: 2 }, () => startProgram(t, 'server', { cwd, env: { PORT: '0' } })),
  )
  const outcomes = await Promise.all(
    servers.map((server) =>
      Promise.race([
        server.output(/Authorization: Bearer (\S+)'[\s\S]*Ctrl-C stops both/).then(([, key = '']) => key),
        server.ended.then(({ code, stderr }) => ({ code, stderr })),
      ]),
    ),
  )
  const [serving, ...more] = servers.filter((_, index) => typeof outcomes[index] === 'string')
  if (serving === undefined || more.length > 0) throw new Error(`one must serve: ${JSON.stringify(outcomes)}`)
  const refused = outcomes.filter((outcome) => typeof outcome !== 'string')
  const stderr = /^petstore-inventory: Another process is using the database in .*stop that one first/
  t.match(refused, [{ code: 1, stderr }])
  const [key = ''] = outcomes.filter((outcome) => typeof outcome === 'string')
  const send = callerOf(await portOf(serving), { authorization: `Bearer ${key}` })
  t.equal((await send('GET', '/v1/inventory')).status, 200)
  serving.process.kill('SIGINT')
  t.equal((await serving.ended).code, 0)
  const data = path.join(cwd, '.data', 'postgres')
  await t.rejects(
    stat(path.join(data, 'data', 'postmaster.pid')),
    { code: 'ENOENT' },
    'the database has stopped',
  )
  t.equal((await readFile(path.join(cwd, '.data', 'api-key'), 'utf8')).trim(), key, 'the key is kept')
  t.strictSame(
    (await readdir(data)).filter((name) => name.includes('unfinished')),
    [],
  )
})

t.test(
  'a start removes what a killed one has left, and nothing that a running one is creating',
  async (t) => {
    const folder = await temporaryFolder(t)
    const killed = spawn(process.execPath, ['--version'])
    await once(killed, 'exit')
    const running = `data.unfinished-${process.pid}`
    for (const name of [running, `data.unfinished-${killed.pid}`, 'data'])
      await mkdir(path.join(folder, name, 'base'), { recursive: true })
    await removeUnfinished(folder)
    t.strictSame((await readdir(folder)).sort(), ['data', running])
  },
)
