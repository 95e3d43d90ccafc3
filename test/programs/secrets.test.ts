import { readFile } from 'node:fs/promises'
import t from 'tap'
import { hashApiKey, makeApiKey } from '../../src/api-keys/key.ts'
import { addKey, testDatabase, testRole } from '../support/database.ts'
import { createSender, json } from '../support/http.ts'
import { startServer } from '../support/program.ts'
import { openRaw, sendRaw } from '../support/raw.ts'
import { startRelay } from '../support/relay.ts'

const fixed = 'a-fixed-key-0123456789abcdefghijklmnop'

t.test('no key is in the log, in an answer, or in what other users of the machine see', async (t) => {
  const role = await testRole(t)
  const database = await testDatabase(t, { entries: ['1,9,available'] })
  await database.query(`GRANT ALL ON ALL TABLES IN SCHEMA public TO ${role.name}`)
  const way = await startRelay(t, database.url)
  const [stored, unknown] = [await addKey(database, 'stored'), makeApiKey()]
  const settings = { API_KEYS: `ops:${fixed}`, LOG_LEVEL: 'trace' }
  const server = await startServer(t, { DATABASE_URL: role.toUrl(way.url), ...settings })
  const { port } = server
  const answers: string[] = []
  for (const key of [fixed, stored, unknown, `${fixed}x`]) {
    for (const authorization of [`Bearer ${key}`, `Basic ${key}`, key, `Bearer ${key}, ${key}`]) {
      const send = createSender(port, { authorization, cookie: `key=${key}` })
      for (const [method, path, message] of [
        ['GET', `/v1/inventory?key=${key}`, {}],
        ['PATCH', '/v1/inventory/1', json({ quantity: 9, key })],
        ['PATCH', '/v1/inventory/1', json(`{"quantity": "${key}"}`)],
        ['DELETE', '/v1/inventory', {}],
        ['GET', '/v1/nothing', {}],
      ] as const) {
        const { text, headers } = await send(method, path, message)
        answers.push(text, JSON.stringify(headers))
      }
    }
    const header = `Authorization: Bearer ${key}\r\n`
    answers.push(
      await sendRaw(port, `GET /v1/inventory HTTP/1.1\r\nHost: x\r\n${header}X: \0\r\n\r\n`),
      await sendRaw(port, `GET /v1/inventory?${key} HTTP/1.1\r\n${header}Connection: close\r\n\r\n`),
    )
    const { socket } = await openRaw(port)
    socket.end(`PATCH /v1/inventory/1 HTTP/1.1\r\nHost: x\r\n${header}Content-Length: 9\r\n\r\n{`)
  }
  const commandLine = await readFile(`/proc/${server.process.pid}/cmdline`, 'latin1').catch(() => '')
  way.fail()
  await server.output(/the API keys cannot be read/)
  const send = createSender(port, { authorization: `Bearer ${unknown}` })
  const { status, text } = await send('GET', '/v1/inventory')
  t.equal(status, 503)
  answers.push(text)
  const { stdout, stderr } = await server.stop()
  t.ok((stdout.match(/"msg":"request"/g)?.length ?? 0) > 80, 'the log is there')
  const places = { stdout, stderr, commandLine, answers: answers.join('\n') }
  for (const [place, content] of Object.entries(places)) {
    for (const secret of [fixed, stored, unknown, role.password])
      t.notOk(content.includes(secret), `${place} has no ${secret.slice(0, 4)}…`)
    t.notOk(content.includes(hashApiKey(stored)), `${place} has no digest`)
  }
})
