import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { connect } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { explain } from '../../src/process/explain.ts'
import { printableText } from '../../src/process/terminal.ts'
import { readMetrics } from '../docs/pages.ts'
import { apiKey, startApp } from '../support/app.ts'
import { addKey, testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { type Answer, createSender, json } from '../support/http.ts'
import { openUnread, updateRequest } from '../support/messages.ts'
import { connectToMetrics, parseSamples } from '../support/metrics.ts'
import { freePort } from '../support/ports.ts'
import {
  persistentCaller,
  programFile,
  readPort,
  run,
  startProgram,
  startServer,
  temporaryFolder,
} from '../support/program.ts'
import { openRaw, sendRaw, statusesIn } from '../support/raw.ts'
import { startLackingServer } from '../support/relay.ts'

const headers = { authorization: `Bearer ${apiKey}` }

t.test('on SIGTERM it answers what is in flight, waits for nothing idle, and exits', async (t) => {
  const database = await testDatabase(t, { entries: ['1,9,available'] })
  const env = { DATABASE_URL: database.url, NODE_ENV: 'production', METRICS_PORT: '' }
  const server = await startServer(t, env)
  await persistentCaller(t, server.port)('GET', '/v1/inventory')
  const silent = await openRaw(server.port)
  const halfSent = await openRaw(server.port)
  halfSent.socket.write('GET /v1/inventory HTTP/1.1\r\nHost: x\r\n')

  const update = await openRaw(server.port)
  const [head = '', body] = updateRequest(5, 'Expect: 100-continue\r\n').split(/(?<=\r\n\r\n)/)
  update.socket.write(head)
  await once(update.socket, 'data')
  server.process.kill('SIGTERM')
  await server.output(/"SIGTERM: stopping"/)
  update.socket.write(`${body}`)
  t.equal(statusesIn(await update.received).at(-1), 200)
  const { code, stdout } = await server.ended
  t.equal(code, 0)
  t.match(stdout, /"stopped"/)
  t.notMatch(stdout, /metrics at/, 'nothing serves metrics without METRICS_PORT')
  await Promise.all([silent.received, halfSent.received])
})

t.test('a second signal exits at once', async (t) => {
  // Larger than the buffers of a connection.
  const database = await testDatabase(t, { entries: 200_000 })
  const server = await startServer(t, { DATABASE_URL: database.url })
  // A list that is not read is in flight for as long as the stop may take.
  await openUnread(t, server.port)
  server.process.kill('SIGTERM')
  await server.output(/"SIGTERM: stopping"/)
  // At once, it would be taken for the same signal, sent twice.
  await setTimeout(500)
  const { code, stdout } = await server.stop()
  t.equal(code, 1)
  t.notMatch(stdout, 'did not stop within')
})

t.test('a start logs what an operator has to know', async (t) => {
  const { url } = await testDatabase(t)
  const away = 'postgres://nobody:the-password-in-the-url@127.0.0.1:1/none'
  for (const [databaseUrl, API_KEYS, message] of [
    [url, `ops:${apiKey}`, /^$/],
    [url, '', /there is no API key.*create one with "inventory keys create --name ops"/],
    [url, 'ops:hunter2', /the API key "ops" is short enough to be guessed/],
    [away, apiKey, /not ready: The database cannot be reached/],
  ] as const) {
    const { log, send, close } = await startApp(t, databaseUrl, { env: { API_KEYS } })
    if (databaseUrl === away) t.equal((await send('GET', '/v1/inventory')).status, 503)
    await close()
    const warnings = log.filter(({ level }) => Number(level) > 30).map(({ msg }) => msg)
    t.match(warnings.join('\n'), message)
    t.notMatch(JSON.stringify(log), /hunter2|the-password-in-the-url/, databaseUrl)
  }
})

t.test('the server reads .env, which the environment overrides, and listens on localhost', async (t) => {
  const database = await testDatabase(t, { entries: ['1,9,available'] })
  await addKey(database, 'billing', '1 day')
  const settings = `DATABASE_URL=${database.url}\r\nAPI_KEYS=${apiKey}\nPORT=http\nHOST=localhost\nMETRICS_PORT=0\n`
  const cwd = await temporaryFolder(t, { '.env': `\uFEFF${settings}` })
  const server = await startProgram(t, 'server', { cwd, env: { PORT: '0' } })
  const port = await readPort(server)
  const metrics = await connectToMetrics(server)
  for (const taken of [port, metrics.port])
    await t.rejects(once(connect(taken, '::1'), 'connect'), 'IPv4 alone')
  const send = createSender(port, headers)
  t.equal((await send('GET', '/v1/inventory')).status, 200)
  t.equal((await send('GET', '/metrics')).status, 404)

  t.test('metrics are served on a port of their own, and nothing else is', async (t) => {
    const answer = await metrics.send('GET', '/metrics')
    t.equal(answer.status, 200, 'without a key')
    t.equal(answer.headers['content-type'], 'text/plain; version=0.0.4; charset=utf-8')
    t.match(answer.text, /^inventory_build_info\{version="\d+\.\d+\.\d+(-[\w.]+)?",host=".+"\} 1$/m)
    t.match(await metrics.send('HEAD', '/metrics?name=x'), { status: 200, text: '' })
    t.equal((await metrics.send('GET', '/v1/inventory')).status, 404)
  })

  t.test('docs/metrics.md lists every metric, with its type and labels', async (t) => {
    await send('PATCH', '/v1/inventory/1', json({ quantity: 5 }))
    await sendRaw(port, 'no HTTP\r\n\r\n')
    await database.query('ALTER TABLE inventory RENAME TO away')
    await eventually('a 503', async () => (await send('GET', '/readyz')).status === 503)
    await database.query('ALTER TABLE away RENAME TO inventory')
    // The kinds of garbage collection appear only after the first one, and entries where they were counted in time.
    const text = await eventually('all metrics', async () => {
      const { text } = await metrics.send('GET', '/metrics')
      return /^nodejs_gc_duration_seconds_count/m.test(text) && /^inventory_entries\{/m.test(text) && text
    })
    const documented = readMetrics()
    const found: typeof documented = new Map()
    for (const [, name = '', type = '', lines = ''] of text.matchAll(
      /^# HELP (\w+) \w.*\n# TYPE \1 (\w+)\n([^#]*)/gm,
    )) {
      const labels = new Set(parseSamples(lines).flatMap((sample) => Object.keys(sample.labels)))
      labels.delete('le')
      // Those of Node.js and of the process are prom-client's; the page has only what alerts and the dashboard use.
      if (documented.has(name) || !/^(nodejs|process)_/.test(name))
        found.set(name, { type, labels: [...labels].sort() })
    }
    t.strictSame(found, documented)
  })

  t.test('SIGHUP ends it', async (t) => {
    server.process.kill('SIGHUP')
    t.match(await server.ended, { code: 0, stdout: /"SIGHUP: stopping"/ })
  })
})

const noFullDisk = !existsSync('/dev/full') && 'there is no /dev/full'
t.test('a log that cannot be written does not stop it', { skip: noFullDisk }, async (t) => {
  const { url } = await testDatabase(t)
  const port = await freePort()
  const env = { PATH: process.env['PATH'], DATABASE_URL: url, API_KEYS: apiKey, PORT: String(port) }
  const words = ['-c', 'exec "$@" >/dev/full 2>&1', 'bash', process.execPath, programFile('server')]
  const server = run(t, 'bash', words, { env })
  const list = (): Promise<Answer> => createSender(port, headers)('GET', '/v1/inventory')
  await eventually('the server to listen', () => list().catch(() => false as const))
  for (let round = 0; round < 5; round++) t.equal((await list()).status, 200)
  server.process.kill('SIGTERM')
  t.match(await server.ended, { code: 0 })
})

t.test('the message of a start that fails says what to do, without secrets', async (t) => {
  const { url } = await testDatabase(t)
  const { url: lacking } = await startLackingServer(t, url, 'xmin')
  const wrongLogin = new URL(url)
  wrongLogin.username = 'nobody_here'
  wrongLogin.password = 'the-wrong-one'
  for (const [databaseUrl, message, env = {}] of [
    [url, /^The service cannot listen: .* nowhere\.invalid\. Set HOST /, { HOST: 'nowhere.invalid' }],
    [`${url}?options=-c%20work_mem=x`, /refuses .*"work_mem".* Check DATABASE_URL/],
    [lacking, /does not support .*: column entry.xmiq does not exist. See docs\/limits.md./],
    [wrongLogin.href, /^PostgreSQL refuses the connection: .*Check DATABASE_URL/],
  ] as const) {
    const started = startApp(t, databaseUrl, { env })
    const error = printableText(explain(await started.catch((error: unknown) => error)))
    t.match(error, message)
    t.notMatch(error, /\n\s+at |the-wrong-one/, 'no stack trace')
  }
})
