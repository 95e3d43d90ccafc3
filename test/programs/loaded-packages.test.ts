import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { addEntries, testDatabase } from '../support/database.ts'
import { callerOf, json } from '../support/http.ts'
import { portOf, startProgram, temporaryFolder } from '../support/program.ts'
import { root } from '../support/root.ts'

const key = 'a-key-for-tests-0123456789abcdefghijklm'

/** Returns the addresses of all modules that the processes have loaded, which V8 lists with their coverage as they exit. */
async function loadedModules(folder: string): Promise<string[]> {
  const addresses: string[] = []
  for (const file of await readdir(folder)) {
    const { result }: { result: { url: string }[] } = JSON.parse(
      await readFile(path.join(folder, file), 'utf8'),
    )
    addresses.push(...result.map(({ url }) => url))
  }
  return addresses
}

t.test('in production, the server loads only the packages that it uses', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 0, 'available']])
  const folder = await temporaryFolder(t)
  const server = await startProgram(t, 'server', {
    env: {
      NODE_ENV: 'production',
      DATABASE_URL: database.url,
      API_KEYS: key,
      PORT: '0',
      NODE_V8_COVERAGE: folder,
    },
  })
  const send = callerOf(await portOf(server), { authorization: `Bearer ${key}` })
  t.equal((await send('PATCH', '/v1/inventory/1', json({ quantity: 3 }))).status, 200)
  t.equal((await send('GET', '/v1/inventory')).status, 200)
  t.equal((await send('GET', '/readyz')).status, 200)
  server.process.kill('SIGTERM')
  t.equal((await server.ended).code, 0)

  const modules = await loadedModules(folder)
  const { dependencies }: { dependencies: Record<string, string> } = JSON.parse(
    await readFile(path.join(root, 'package.json'), 'utf8'),
  )
  t.strictSame(
    Object.keys(dependencies).filter((name) => modules.some((url) => url.includes(`/node_modules/${name}/`))),
    [
      '@fastify/bearer-auth',
      '@fastify/swagger',
      // prom-client loads it.
      '@opentelemetry/api',
      '@sinclair/typebox',
      'close-with-grace',
      'content-type',
      'fastify',
      'lossless-json',
      'negotiator',
      'pg',
      'pg-connection-string',
      'pino',
      'prom-client',
    ],
    'not those of the command line, of migrations, of traces or of a log for a terminal',
  )
  const ours = modules.filter((url) => !url.includes('/node_modules/'))
  t.strictSame(
    ours.filter((url) => /\/dist\/(cli|local|tracing)\//.test(url)),
    [],
    'nor the parts of the program that use those',
  )
  t.ok(
    ours.some((url) => url.endsWith('/dist/http/app.js')),
    'the list has the modules of the service',
  )
})
