import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { chmod, mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import path from 'node:path'
import t, { type Test } from 'tap'
import { serverFolder as folderFor } from '../../src/local/folder.ts'
import { runCommand } from '../support/command.ts'
import { eventually } from '../support/eventually.ts'
import { createSender, json } from '../support/http.ts'
import { onServer } from '../support/on-server.ts'
import { freePort, listen } from '../support/ports.ts'
import { readPort, startProgram, temporaryFolder } from '../support/program.ts'

const sample =
  '[{"petId":1,"quantity":12,"status":"available"},{"petId":2,"quantity":3,"status":"available"},' +
  '{"petId":3,"quantity":0,"status":"sold"},{"petId":4,"quantity":1,"status":"pending"},' +
  '{"petId":9007199254740993,"quantity":7,"status":"available"}]'
const strictUmask = { NODE_OPTIONS: '--import data:text/javascript,process.umask(0o077)' }
/** They must not reach the connections of the local database. */
const libpqVariables = {
  PGSSLMODE: 'require',
  PGOPTIONS: '-c work_mem=1MB',
  PGHOST: 'nowhere.invalid',
  PGPORT: '1',
  PGDATA: '/nowhere',
}

t.test('a server without settings starts a local database, and keeps it', async (t) => {
  const cwd = await newFolder(t)
  const data = serverFolder(cwd)
  await mkdir(path.join(cwd, '.data'), { mode: 0o700 })
  await writeFile(path.join(cwd, '.data', 'api-key'), '')
  const env = { ...strictUmask, ...libpqVariables, TOKEN: 'secret' }
  const starts = [1, 2].map(() => startLocally(t, cwd, env))
  const first = await Promise.any(starts)
  const inUse = /petstore-inventory: Another process is using the database in .*stop that one first/
  await t.rejects(Promise.all(starts), { message: inUse }, 'one of two starts serves')
  t.match(first.key, /^inv_[A-Za-z0-9]{49}$/, 'an emptied file gets a key')
  t.equal((await stat(path.join(cwd, '.data', 'api-key'))).mode & 0o777, 0o600)
  t.equal(first.firstLine, `Starting PostgreSQL in ${data}…`)
  t.equal((await first.send('GET', '/v1/inventory')).text, sample)
  t.equal((await first.send('PATCH', '/v1/inventory/1', json({ quantity: 20 }))).status, 200)
  const running = { code: 0, stdout: 'No migration is pending.\n', stderr: '' }
  t.match(await runCommand(t, 'migrate up', { cwd }), running)

  const [port] = (await readFile(path.join(data, 'data', 'postmaster.pid'), 'utf8')).split('\n').slice(3)
  const toAddress = (role: string, password: string): string =>
    `postgres://${role}:${password}@127.0.0.1:${port}/postgres`
  for (const role of ['postgres', 'inventory_server'])
    await t.rejects(onServer(toAddress(role, 'guess'), 'SELECT'), { code: '28P01' })
  const superuser = toAddress('postgres', (await readFile(path.join(data, 'password'), 'utf8')).trim())
  const [row] = await onServer(
    superuser,
    `SELECT rolsuper, current_setting('listen_addresses') AS addresses, current_setting('work_mem') AS memory
     FROM pg_roles WHERE rolname = 'inventory_server'`,
  )
  t.strictSame({ ...row }, { rolsuper: 'f', addresses: '127.0.0.1', memory: '4MB' })
  const variables = await onServer(
    superuser,
    `CREATE TEMPORARY TABLE variables (line text); COPY variables FROM PROGRAM 'env'; SELECT line FROM variables`,
  )
  t.notMatch(JSON.stringify(variables), 'secret', 'PostgreSQL has no variable of ours')

  first.server.process.kill('SIGKILL')
  const second = await startLocally(t, cwd)
  t.equal(second.key, first.key)
  t.equal((await second.send('GET', '/v1/inventory')).text, sample.replace('12', '20'))
  second.server.process.kill('SIGINT')
  t.match(await second.server.ended, { code: 0 })
  t.equal(await serverProcess(cwd), undefined, 'the database has stopped as well')
  const stopped = { code: 1, stderr: /DATABASE_URL must be set.*and none is running/ }
  t.match(await runCommand(t, 'migrate up', { cwd }), stopped)

  // A Ctrl-C while the database starts, and one after a start that has failed late.
  await interrupt(t, cwd, /^data$/, 'postmaster.pid')
  const taken = String(await freePort())
  const late = await startProgram(t, 'server', { cwd, env: { PORT: taken, METRICS_PORT: taken } })
  await late.output(/EADDRINUSE: /)
  late.process.kill('SIGINT')
  const { code, stdout } = await late.ended
  t.equal(code, 1)
  t.notMatch(stdout, 'has exited')
  t.equal(await serverProcess(cwd), undefined)

  const third = await startLocally(t, cwd)
  process.kill(Number(await serverProcess(cwd)), 'SIGKILL')
  const exited = /"level":60.*PostgreSQL has exited: SIGKILL ended it\. Its log is \S+postgres\.log"/
  t.match(await third.server.ended, { code: 1, stdout: exited })
})

t.test('a signal while initdb runs ends the start, and leaves nothing running', async (t) => {
  await interrupt(t, await newFolder(t), /^data\.unfinished-/, 'PG_VERSION')
})

t.test('a taken port is noticed before anything is started', async (t) => {
  const taken = String(await listen(t, createServer()))
  const cwd = await newFolder(t)
  const stderr = /^petstore-inventory: The service cannot listen: .*EADDRINUSE: .*\. Set HOST .*\n$/
  const server = await startProgram(t, 'server', { cwd, env: { PORT: taken } })
  t.match(await server.ended, { code: 1, stdout: '', stderr })
  t.strictSame(await readdir(cwd), [])
})

/** The folder of the database of a server that is started in a folder. */
const serverFolder = (cwd: string): string => folderFor(path.join(cwd, '.data', 'postgres'))

/** An empty folder that others may not enter. */
async function newFolder(t: Test): Promise<string> {
  const cwd = await temporaryFolder(t)
  await chmod(cwd, 0o700)
  // That of root is elsewhere.
  t.teardown(() => rm(serverFolder(cwd), { recursive: true, force: true }))
  return cwd
}

/** Sends SIGINT to a server once a file of its database exists, and shows that it ends and nothing is left. */
async function interrupt(t: Test, cwd: string, folder: RegExp, file: string): Promise<void> {
  const data = serverFolder(cwd)
  const server = await startProgram(t, 'server', { cwd, env: { PORT: '0' } })
  await eventually(`${file} in ${folder}`, async () => {
    const names = await readdir(data).catch(() => [])
    return names.some((name) => folder.test(name) && existsSync(path.join(data, name, file)))
  })
  // However long initdb takes: it is halted.
  if (!existsSync(path.join(data, 'data')))
    for (const pid of programsBelow(data)) process.kill(pid, 'SIGSTOP')
  server.process.kill('SIGINT')
  t.match(await server.ended, { code: 0, stderr: '' }, file)
  t.equal(await serverProcess(cwd), undefined)
  const left = await Promise.all([cwd, data].map((folder) => readdir(folder, { recursive: true })))
  t.notMatch(left.flat().join('\n'), 'unfinished')
  t.strictSame(programsBelow(data), [])
}

/** The programs of PostgreSQL whose data is below a folder. */
function programsBelow(folder: string): number[] {
  const { stdout } = spawnSync('pgrep', ['-f', `(-D |--pgdata=)${folder}`], { encoding: 'utf8' })
  return stdout.split('\n').filter(Boolean).map(Number)
}

/** Starts the server without a database, and returns what its welcome shows and what sends requests with its key. */
async function startLocally(t: Test, cwd: string, env: Record<string, string> = {}) {
  const server = await startProgram(t, 'server', { cwd, env: { PORT: '0', ...env } })
  const welcome = /^(.*)\n[\s\S]*Authorization: Bearer (\S+)'[\s\S]*Ctrl-C stops both/
  const [, firstLine = '', key = ''] = await server.output(welcome)
  const send = createSender(await readPort(server), { authorization: `Bearer ${key}` })
  return { server, key, send, firstLine }
}

/** The first process of the database below a folder. PostgreSQL removes the file that names it when it stops. */
async function serverProcess(cwd: string): Promise<number | undefined> {
  const file = path.join(serverFolder(cwd), 'data', 'postmaster.pid')
  const [pid] = (await readFile(file, 'utf8').catch(() => '')).split('\n')
  return pid ? Number(pid) : undefined
}
