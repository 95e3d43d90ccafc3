import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, existsSync, openSync } from 'node:fs'
import { mkdir, writeFile } from 'node:fs/promises'
import { Agent } from 'node:http'
import { createServer } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { addEntries, testDatabase } from '../support/database.ts'
import { eventually, until } from '../support/eventually.ts'
import { callerOf } from '../support/http.ts'
import { freePort } from '../support/other-program.ts'
import { type Program, portOf, startProgram, temporaryFolder } from '../support/program.ts'
import { openRaw, startUpdate } from '../support/raw.ts'
import { testRole } from '../support/roles.ts'

const key = 'a-key-for-tests-0123456789abcdefghijklm'
const headers = { authorization: `Bearer ${key}` }

for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGUSR2'] as const) {
  t.test(
    `on ${signal} it answers what is in flight, lets no idle connection hold it, and exits with 0`,
    async (t) => {
      const database = await testDatabase(t)
      await addEntries(database, [['1', 9, 'available']])
      const server = await startProgram(t, 'server', {
        env: { DATABASE_URL: database.url, API_KEYS: key, PORT: '0' },
      })
      const port = await portOf(server)
      const agent = new Agent({ keepAlive: true })
      t.teardown(() => agent.destroy())
      await callerOf(port, headers, agent)('GET', '/v1/inventory')
      const silent = await openRaw(port)
      const halfSent = await openRaw(port)
      halfSent.socket.write('GET /v1/inventory HTTP/1.1\r\nHost: x\r\n')

      const inFlight = await startUpdate(port, key)
      server.process.kill(signal)
      await server.output(new RegExp(`"${signal}: stopping"`))
      const { status, headers: answered } = await inFlight.finish()
      t.equal(status, 200)
      t.equal(answered.get('connection'), 'close')
      const { code, stdout } = await server.ended
      t.equal(code, 0)
      t.match(stdout, /"stopped"/)
      await Promise.all([silent.received, halfSent.received])
    },
  )
}

t.test('a stop is announced to clients, and cuts off none of them', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 9, 'available']])
  const server = await startProgram(t, 'server', {
    env: { DATABASE_URL: database.url, API_KEYS: key, PORT: '0' },
  })
  const port = await portOf(server)
  let answers = 0
  const callers = Array.from({ length: 8 }, async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const send = callerOf(port, headers, agent)
    let isLast = false
    while (!isLast) {
      const answer = await send('GET', '/v1/inventory')
      answers++
      t.equal(answer.status, 200)
      isLast = answer.headers.connection === 'close'
    }
    agent.destroy()
  })
  await until('a hundred answers', () => answers >= 100)
  server.process.kill('SIGTERM')
  await server.output(/"SIGTERM: stopping"/)
  const notReady = await callerOf(port)('GET', '/readyz')
  t.equal(notReady.status, 503)
  t.match(notReady.text, /shutting down/)
  await Promise.all(callers)
  t.equal((await server.ended).code, 0)
})

t.test(
  'a stop has a time limit and an exit code of its own, and a second signal exits at once',
  async (t) => {
    const database = await testDatabase(t)
    // Larger than the buffers of a connection.
    await database.query("INSERT INTO inventory SELECT n, 0, 'available' FROM generate_series(1, 400000) n")
    const start = async (): Promise<Program> => {
      const server = await startProgram(t, 'server', {
        env: { DATABASE_URL: database.url, API_KEYS: key, PORT: '0' },
      })
      const { socket } = await openRaw(await portOf(server))
      // A list that is not read is in flight for longer than the stop may take.
      socket.write(`GET /v1/inventory HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\n\r\n`)
      await once(socket, 'data')
      socket.pause()
      return server
    }
    const [stuck, hurried] = await Promise.all([start(), start()])
    stuck.process.kill('SIGTERM')
    hurried.process.kill('SIGTERM')
    await hurried.output(/"SIGTERM: stopping"/)
    // At once, it would be taken for the same signal, sent twice.
    await setTimeout(500)
    hurried.process.kill('SIGTERM')
    t.equal((await hurried.ended).code, 1)
    t.equal(stuck.process.exitCode, null, 'the other one still waits for its client')
    t.equal((await stuck.ended).code, 1)
  },
)

t.test('the server starts during an outage of the database', async (t) => {
  const server = await startProgram(t, 'server', {
    env: {
      DATABASE_URL: 'postgres://nobody:the-password-in-the-url@127.0.0.1:1/none',
      API_KEYS: key,
      PORT: '0',
    },
  })
  const answer = await callerOf(await portOf(server), headers)('GET', '/v1/inventory')
  t.equal(answer.status, 503)
  server.process.kill('SIGTERM')
  const { code, stdout } = await server.ended
  t.equal(code, 0)
  t.match(stdout, /not ready: The database cannot be reached/)
  t.notMatch(stdout, /the-password-in-the-url/)
})

t.test('a server without a key says how to create one', async (t) => {
  const database = await testDatabase(t)
  const server = await startProgram(t, 'server', { env: { DATABASE_URL: database.url, PORT: '0' } })
  t.equal((await callerOf(await portOf(server), headers)('GET', '/v1/inventory')).status, 401)
  await server.output(/there is no API key.*create one with \\"inventory keys create --name ops\\"/)
})

t.test('a key that can be guessed causes a warning without the key', async (t) => {
  const database = await testDatabase(t)
  const server = await startProgram(t, 'server', {
    env: { DATABASE_URL: database.url, PORT: '0', API_KEYS: 'ops:hunter2' },
  })
  await server.output(/the API key \\"ops\\" is short enough to be guessed/)
  server.process.kill('SIGTERM')
  t.notMatch((await server.ended).stdout, /hunter2/)
})

t.test('synchronous_commit off causes a warning', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t)
  await database.query(`ALTER ROLE ${role.name} SET synchronous_commit = off`)
  const warning = /"level":40[^\n]*synchronous_commit is off/
  const server = await startProgram(t, 'server', {
    env: { DATABASE_URL: role.urlOf(database.url), PORT: '0' },
  })
  await server.output(warning)
  const other = await startProgram(t, 'server', { env: { DATABASE_URL: database.url, PORT: '0' } })
  await portOf(other)
  other.process.kill('SIGTERM')
  t.notMatch((await other.ended).stdout, warning)
})

t.test('SIGUSR1 opens no inspector', async (t) => {
  const database = await testDatabase(t)
  const server = await startProgram(t, 'server', {
    env: { DATABASE_URL: database.url, PORT: '0', NODE_ENV: 'production' },
  })
  const port = await portOf(server)
  server.process.kill('SIGUSR1')
  t.equal((await callerOf(port)('GET', '/livez')).status, 200)
  server.process.kill('SIGTERM')
  const { code, stderr } = await server.ended
  t.equal(code, 0)
  t.notMatch(stderr, /Debugger|inspector/i)
})

t.test('the server reads .env, which the environment overrides', async (t) => {
  const database = await testDatabase(t)
  const cwd = await temporaryFolder(t)
  await writeFile(`${cwd}/.env`, `DATABASE_URL=${database.url}\nAPI_KEYS=${key}\nPORT=http\n`)
  const server = await startProgram(t, 'server', { cwd, env: { PORT: '0' } })
  t.equal((await callerOf(await portOf(server), headers)('GET', '/v1/inventory')).status, 200)
})

t.test('a .env that is not a file is named by the server and the command line', async (t) => {
  const cwd = await temporaryFolder(t)
  await mkdir(`${cwd}/.env`)
  for (const [program, args] of [
    ['server', []],
    ['cli', ['status']],
    ['cli', ['config']],
  ] as const) {
    const { code, stderr } = await (await startProgram(t, program, { cwd, args: [...args] })).ended
    t.equal(code, 1)
    t.match(stderr, /\n {2}\.env must be a file that can be read: EISDIR[^\n]*\n$/)
  }
})

const noFullDisk = !existsSync('/dev/full') && 'there is no /dev/full'
t.test('a log that cannot be written does not stop it', { skip: noFullDisk }, async (t) => {
  const database = await testDatabase(t)
  const full = openSync('/dev/full', 'w')
  t.teardown(() => closeSync(full))
  const port = await freePort()
  const server = spawn(process.execPath, ['dist/server.js'], {
    env: { PATH: process.env['PATH'], DATABASE_URL: database.url, API_KEYS: key, PORT: String(port) },
    stdio: ['ignore', full, full],
  })
  t.teardown(() => server.kill('SIGKILL'))
  const send = callerOf(port, headers)
  const statusOf = (path: string): Promise<number> =>
    send('GET', path).then(
      ({ status }) => status,
      () => 0,
    )
  await eventually('the first list', async () =>
    (await statusOf('/v1/inventory')) === 200 ? true : undefined,
  )
  for (let round = 0; round < 20; round++) t.equal(await statusOf('/v1/inventory'), 200)
  server.kill('SIGTERM')
  const [code] = await once(server, 'exit')
  t.equal(code, 0)
})

t.test('a start that fails has one message and a nonzero exit code', async (t) => {
  const database = await testDatabase(t)
  const taken = createServer().listen(0, '127.0.0.1')
  await once(taken, 'listening')
  t.teardown(() => taken.close())
  const address = taken.address()
  const port = typeof address === 'object' && address ? String(address.port) : ''
  const wrongPassword = new URL(database.url)
  wrongPassword.username = 'nobody_here'
  wrongPassword.password = 'the-wrong-one'
  const wrongDatabase = new URL(database.url)
  wrongDatabase.pathname = '/no_such_database'
  const faults: [title: string, env: Record<string, string>, message: RegExp][] = [
    [
      'a port in use',
      { DATABASE_URL: database.url, PORT: port },
      new RegExp(`127.0.0.1:${port} is in use.*set PORT`),
    ],
    [
      'an address of another machine',
      { DATABASE_URL: database.url, HOST: '192.0.2.1', PORT: '0' },
      /192\.0\.2\.1 is not an address of this machine/,
    ],
    [
      'a host name that cannot be found',
      { DATABASE_URL: database.url, HOST: 'nowhere.invalid', PORT: '0' },
      /The host nowhere\.invalid cannot be found .*\. Set HOST to /,
    ],
    ['bad settings', { PORT: 'x', LOG_LEVEL: 'y' }, /PORT must be .*\n.*LOG_LEVEL must be /],
    ['no database in production', { NODE_ENV: 'production' }, /DATABASE_URL must be set/],
    [
      'a wrong login',
      { DATABASE_URL: wrongPassword.href },
      /PostgreSQL refuses the connection: .*Check DATABASE_URL/,
    ],
    [
      'a database that is not there',
      { DATABASE_URL: wrongDatabase.href },
      /"no_such_database" does not exist/,
    ],
  ]
  for (const [title, env, message] of faults) {
    await t.test(title, async (t) => {
      const { code, stderr } = await (await startProgram(t, 'server', { env })).ended
      t.equal(code, 1)
      t.match(stderr, message)
      t.notMatch(stderr, /\n\s+at /, 'no stack trace')
      t.notMatch(stderr, /the-wrong-one/)
    })
  }
})
