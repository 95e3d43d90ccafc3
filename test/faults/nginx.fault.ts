import { readFile } from 'node:fs/promises'
import t, { type Test } from 'tap'
import { giveTo, serverAccount } from '../support/account.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { isError } from '../support/error-shape.ts'
import { callerOf, json } from '../support/http.ts'
import { contradictionIn } from '../support/linearizability.ts'
import { startLoad } from '../support/load.ts'
import { freePort, startOtherProgram } from '../support/other-program.ts'
import { temporaryFolder } from '../support/program.ts'
import { apiKey, type RunningServer, startServer } from '../support/running-server.ts'

/** Starts nginx with ops/nginx.conf, in front of two ports, and returns its own port. */
async function startNginx(t: Test, one: number, two: number): Promise<number> {
  const given = await readFile('ops/nginx.conf', 'utf8')
  const port = await freePort()
  const folder = await temporaryFolder(t)
  await giveTo(serverAccount(), folder)
  const folders = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
  await startOtherProgram(t, 'nginx', {
    args: ['-c'],
    ready: /using the "\w+" event method/,
    config: `daemon off;
master_process off;
error_log stderr notice;
pid ${folder}/pid;
events {}
http {
access_log off;
${folders.map((name) => `${name}_temp_path ${folder}/${name};`).join('\n')}
${given
  .replace('listen 80;', `listen 127.0.0.1:${port};`)
  .replace('10.0.0.11:3000', `127.0.0.1:${one}`)
  .replace('10.0.0.12:3000', `127.0.0.1:${two}`)}
}
`,
  })
  return port
}

t.test('two processes behind nginx are restarted one after the other, and no list fails', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [
    ['1', 0, 'available'],
    ['2', 0, 'available'],
  ])
  const start = (port: number): Promise<RunningServer> =>
    startServer(t, { DATABASE_URL: database.url, PORT: String(port) })
  const [one, two] = [await freePort(), await freePort()]
  const servers = new Map([
    [one, await start(one)],
    [two, await start(two)],
  ])
  const port = await startNginx(t, one, two)
  const loads = [
    startLoad(t, { ports: [port], clients: 6, pets: [1] }),
    startLoad(t, { ports: [port], clients: 6, pets: [2], keepAlive: false }),
  ]
  const places = [one, two, one, two]
  for (const place of places) {
    await Promise.all(loads.map((load) => load.served(100)))
    const server = servers.get(place)
    server?.process.kill('SIGTERM')
    t.equal((await server?.ended)?.code, 0)
    servers.set(place, await start(place))
  }
  await Promise.all(loads.map((load) => load.served(100)))
  await Promise.all(loads.map((load) => load.stop()))
  const failures = loads.flatMap((load) => load.failures)
  t.comment(`${failures.length} requests have failed in ${places.length} restarts`)
  t.ok(failures.length <= places.length, 'at most one in each restart')
  t.strictSame(
    failures.filter(({ kind, answer }) => kind === 'list' || answer?.status !== 503),
    [],
    'an update, with a 503',
  )
  for (const [index, load] of loads.entries())
    t.equal(contradictionIn(load.historyOf(index + 1), 0), undefined)
})

t.test('errors of the service come through nginx as they are', async (t) => {
  const database = await testDatabase(t, { empty: true })
  const server = await startServer(t, { DATABASE_URL: database.url })
  const target = server.port
  const send = callerOf(await startNginx(t, target, target), { authorization: `Bearer ${apiKey}` })
  t.match(await send('PATCH', '/v1/inventory/1', json('{')), { status: 400, text: /"invalid_request"/ })
  t.match(await send('DELETE', '/v1/inventory/1'), { status: 405, text: /"method_not_allowed"/ })
  t.match(await send('GET', '/readyz'), { status: 503, text: /schema is behind/ })
})

t.test('while no process is ready, nginx answers with the one error body and Retry-After', async (t) => {
  const port = await startNginx(t, await freePort(), await freePort())
  const { status, headers, text } = await callerOf(port)('GET', '/v1/inventory')
  isError(t, { status, headers, body: text }, 503, 'service_unavailable')
  t.equal(headers['retry-after'], '1')
})
