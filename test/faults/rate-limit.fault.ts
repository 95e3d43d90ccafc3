import { readFile } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { apiKey, startApp } from '../support/app.ts'
import { testDatabase } from '../support/database.ts'
import { callerOf } from '../support/http.ts'
import { freePort, startOtherProgram } from '../support/other-program.ts'
import { root } from '../support/root.ts'

const configuration = path.join(root, 'ops/haproxy.cfg')
const LIMIT = 20

t.test('HAProxy limits the rate of each key, and of addresses that send none', async (t) => {
  const database = await testDatabase(t)
  const { port: server } = await startApp(t, database.url, {
    app: {
      findApiKey: (key) => (key.startsWith(apiKey) ? { name: key } : undefined),
    },
  })
  const port = await freePort()
  const address = `127.0.0.1:${server}`
  await startOtherProgram(t, 'haproxy', {
    args: ['-W', '-db', '-f'],
    config: await readFile(configuration, 'utf8'),
    env: { LISTEN: `127.0.0.1:${port}`, SERVER_1: address, SERVER_2: address, RATE_LIMIT: String(LIMIT) },
    ready: /Loading success/,
  })
  for (const authorization of [`Bearer ${apiKey}1`, `Bearer ${apiKey}2`, undefined]) {
    const send = callerOf(port, authorization === undefined ? {} : { authorization })
    for (let count = 1; count <= LIMIT; count++) {
      t.equal((await send('GET', '/v1/inventory')).status, authorization === undefined ? 401 : 200)
    }
    const { status, headers, text } = await send('GET', '/v1/inventory')
    t.equal(status, 429)
    t.equal(headers['retry-after'], '10')
    t.match(headers['content-type'], /^application\/json/)
    t.strictSame(Object.keys(JSON.parse(text)), ['code', 'message', 'status'])
    t.equal(JSON.parse(text).status, 429)
  }
})
