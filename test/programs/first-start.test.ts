import { existsSync } from 'node:fs'
import { chmod, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import path from 'node:path'
import pg from 'pg'
import t, { type Test } from 'tap'
import { setUpLocally } from '../../src/local/local-setup.ts'
import { runCommand } from '../support/command.ts'
import { eventually } from '../support/eventually.ts'
import { callerOf, json } from '../support/http.ts'
import { listen } from '../support/listen.ts'
import { type Program, portOf, startProgram, temporaryFolder } from '../support/program.ts'

const sample =
  '[{"petId":1,"quantity":12,"status":"available"},{"petId":2,"quantity":3,"status":"available"},' +
  '{"petId":3,"quantity":0,"status":"sold"},{"petId":4,"quantity":1,"status":"pending"},' +
  '{"petId":9007199254740993,"quantity":7,"status":"available"}]'

const changed = sample.replace('"quantity":12', '"quantity":20')

/** Starts the server where nobody has set up anything, and the key that its welcome shows. */
async function start(t: Test, cwd: string): Promise<{ server: Program; port: number; key: string }> {
  const server = await startProgram(t, 'server', { cwd, env: { PORT: '0' } })
  const [, key = ''] = await server.output(/Authorization: Bearer (\S+)'[\s\S]*Ctrl-C stops both/)
  return { server, port: await portOf(server), key }
}

async function stop(server: Program): Promise<number | null> {
  server.process.kill('SIGINT')
  return (await server.ended).code
}

/** The process of the database; it removes the file that says so when it stops. */
async function serverProcess(cwd: string): Promise<number> {
  const file = path.join(cwd, '.data', 'postgres', 'data', 'postmaster.pid')
  return Number((await readFile(file, 'utf8')).split('\n')[0])
}

function runs(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

t.test('a server without settings starts a local database with sample entries, and keeps it', async (t) => {
  const cwd = await temporaryFolder(t)
  await chmod(cwd, 0o755)

  const first = await start(t, cwd)
  await first.server.output(/^Starting PostgreSQL in \.data…\n/)
  const send = callerOf(first.port, { authorization: `Bearer ${first.key}` })
  t.match(first.key, /^inv_[A-Za-z0-9]{49}$/)
  t.equal((await send('GET', '/v1/inventory')).text, sample)
  t.equal((await send('PATCH', '/v1/inventory/1', json({ quantity: 20 }))).status, 200)
  await serverProcess(cwd)
  t.equal(await stop(first.server), 0)
  await t.rejects(serverProcess(cwd), { code: 'ENOENT' }, 'the database has stopped as well')

  await t.test('the command line does not find the stopped database', async (t) => {
    const { code, stderr } = await runCommand(t, ['migrate', 'up'], { cwd })
    t.equal(code, 1)
    t.match(stderr, /DATABASE_URL must be set.*and none is running/)
  })

  await t.test('a second start finds the data and the key again', async (t) => {
    const { server, port, key } = await start(t, cwd)
    t.equal(key, first.key)
    t.equal((await callerOf(port, { authorization: `Bearer ${key}` })('GET', '/v1/inventory')).text, changed)

    await t.test('the command line finds the local database', async (t) => {
      const { code, stdout, stderr } = await runCommand(t, ['migrate', 'up'], { cwd })
      t.equal(stderr, '')
      t.equal(code, 0)
      t.equal(stdout, 'No migration is pending.\n')
    })

    await t.test('while another process refuses to share it', async (t) => {
      const { code, stderr } = await (await startProgram(t, 'server', { cwd, env: { PORT: '0' } })).ended
      t.equal(code, 1)
      t.match(stderr, /Another process is using the database in .*stop that one first/)
    })
    t.equal((await callerOf(port, { authorization: `Bearer ${key}` })('GET', '/readyz')).status, 200)

    server.process.kill('SIGKILL')
    await server.ended
    t.ok(runs(await serverProcess(cwd)), 'the killed process has left its database running')
  })

  await t.test('a start after a kill takes the running database over, and stops it in the end', async (t) => {
    const orphan = await serverProcess(cwd)
    const { server, port, key } = await start(t, cwd)
    t.equal(await serverProcess(cwd), orphan)
    t.equal((await callerOf(port, { authorization: `Bearer ${key}` })('GET', '/v1/inventory')).text, changed)
    t.equal(await stop(server), 0)
    await t.rejects(serverProcess(cwd), { code: 'ENOENT' }, 'the database has stopped')
  })
})

t.test('a start repairs what a crash or a full disk has left', async (t) => {
  const cwd = await temporaryFolder(t)
  await chmod(cwd, 0o755)
  await mkdir(path.join(cwd, '.data'))
  await writeFile(path.join(cwd, '.data', 'api-key'), '')
  const first = await start(t, cwd)
  t.match(first.key, /^inv_/, 'an empty key is none')
  t.equal((await stat(path.join(cwd, '.data', 'api-key'))).mode & 0o777, 0o600)
  t.equal(await stop(first.server), 0)
  // The number of a process that is not PostgreSQL, as after a reboot.
  await writeFile(path.join(cwd, '.data', 'postgres', 'data', 'postmaster.pid'), `${process.pid}\n`)
  const second = await start(t, cwd)
  t.equal(await stop(second.server), 0)
})

t.test('a signal in the middle of a first start ends it, and leaves no database running', async (t) => {
  const [first, second] = [await temporaryFolder(t), await temporaryFolder(t)]
  // Created one after the other: before initdb, after it, and by the starting database.
  for (const [cwd, file] of [
    [first, 'password'],
    [second, 'data'],
    [second, 'data/postmaster.pid'],
  ] as const) {
    await chmod(cwd, 0o755)
    const server = await startProgram(t, 'server', { cwd, env: { PORT: '0' } })
    await eventually(`the file ${file}`, async () => {
      return existsSync(path.join(cwd, '.data', 'postgres', file)) || undefined
    })
    server.process.kill('SIGINT')
    const { code, stdout, stderr } = await server.ended
    t.equal(code, 0, file)
    t.equal(stderr, '')
    // Later signals may come so late that the service is already starting.
    if (file === 'password') t.notMatch(stdout, 'not ready', 'it does not continue while its database stops')
    await t.rejects(serverProcess(cwd), { code: 'ENOENT' })
  }
})

t.test('the local database accepts only generated passwords, and only from this machine', async (t) => {
  const cwd = await temporaryFolder(t)
  await chmod(cwd, 0o755)
  const directory = path.join(cwd, '.data')
  const { signal } = new AbortController()
  const setup = await setUpLocally(directory, signal)
  try {
    for (const role of ['postgres', new URL(setup.databaseUrl).username]) {
      const url = new URL(setup.databaseUrl)
      url.username = role
      url.password = 'guessed'
      await t.rejects(new pg.Client(url.href).connect(), { code: '28P01' }, role)
    }
    const client = new pg.Client(setup.databaseUrl)
    await client.connect()
    const { rows } = await client.query(
      `SELECT rolsuper, current_setting('listen_addresses') AS addresses
       FROM pg_roles WHERE rolname = current_user`,
    )
    await client.end()
    t.strictSame(rows, [{ rolsuper: false, addresses: '127.0.0.1' }])
  } finally {
    await setup.stop()
  }
  await writeFile(path.join(directory, 'postgres', 'password'), 'of another database\n')
  await t.rejects(setUpLocally(directory, signal), {
    name: 'EmbeddedServerError',
    message: /The password in .* does not match the database there\. Remove that folder/,
  })
  await t.rejects(serverProcess(cwd), { code: 'ENOENT' }, 'the database has stopped')
})

async function takenPort(t: Test): Promise<string> {
  return String(await listen(t, createServer()))
}

t.test('a port in use is reported before anything is set up', async (t) => {
  const cwd = await temporaryFolder(t)
  const server = await startProgram(t, 'server', { cwd, env: { PORT: await takenPort(t) } })
  const { code, stdout, stderr } = await server.ended
  t.equal(code, 1)
  t.match(stderr, /is in use/)
  t.equal(stdout, '')
  t.notOk(existsSync(path.join(cwd, '.data')))
})

t.test('a failed start leaves no database running, with a Ctrl-C while it stops, too', async (t) => {
  const METRICS_PORT = await takenPort(t)
  const cwd = await temporaryFolder(t)
  await chmod(cwd, 0o755)
  for (const isInterrupted of [false, true]) {
    const server = await startProgram(t, 'server', { cwd, env: { PORT: '0', METRICS_PORT } })
    await server.output(/is in use/)
    if (isInterrupted) server.process.kill('SIGINT')
    t.equal((await server.ended).code, 1)
    await t.rejects(serverProcess(cwd), { code: 'ENOENT' }, 'the database has stopped')
  }
})

t.test('a server that cannot start a local database says what to do', async (t) => {
  const cwd = await temporaryFolder(t)
  const failure = async (env: Record<string, string> = {}): Promise<string> => {
    const { code, stderr } = await (await startProgram(t, 'server', { cwd, env: { PORT: '0', ...env } }))
      .ended
    t.equal(code, 1)
    return stderr
  }
  const onWindows = encodeURIComponent("Object.defineProperty(process, 'platform', { value: 'win32' })")
  t.match(
    await failure({ NODE_OPTIONS: `--import data:text/javascript,${onWindows}` }),
    /^petstore-inventory: The embedded PostgreSQL does not run on Windows\. Set DATABASE_URL .* WSL 2/,
  )
  // Root can write to every folder, but not below a file.
  await writeFile(path.join(cwd, '.data'), '')
  t.match(
    await failure(),
    /^petstore-inventory: The embedded PostgreSQL cannot keep its data in .*\.data: .*, or set DATABASE_URL .*\.\n$/,
  )
})

t.test(
  'as root it runs in a folder that nobody else may enter',
  { skip: process.getuid?.() !== 0 && 'this user is not root' },
  async (t) => {
    const cwd = await temporaryFolder(t)
    await chmod(cwd, 0o700)
    const { server, port, key } = await start(t, cwd)
    t.equal((await callerOf(port, { authorization: `Bearer ${key}` })('GET', '/v1/inventory')).text, sample)
    const [, directory = ''] = await server.output(/keeps the data in (\S+)/)
    t.match(directory, /^\/var\/lib\/petstore-inventory\//)

    t.match(
      await runCommand(t, ['low', '--below', '1'], { cwd }),
      { code: 7, stdout: /^3 +0 +sold$/m },
      'the command line finds it',
    )
    t.equal(await stop(server), 0)
    await rm(directory, { recursive: true })
  },
)
