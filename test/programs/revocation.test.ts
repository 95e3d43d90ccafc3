import t, { type Test } from 'tap'
import { runCommand } from '../support/command.ts'
import { type TestDatabase, testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { callerOf } from '../support/http.ts'
import { outageOf } from '../support/outage.ts'
import { portOf, startProgram } from '../support/program.ts'

async function inventory(t: Test, database: TestDatabase, ...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await runCommand(t, args, { env: { DATABASE_URL: database.url } })
  t.equal(code, 0, stderr)
  return stdout.trim()
}

/** The status of a list for the holder of a key. */
async function statusOf(port: number, key: string): Promise<number> {
  const { status } = await callerOf(port, { authorization: `Bearer ${key}` })('GET', '/v1/inventory')
  return status
}

t.test('the log tells the keys of one name apart, and who still calls with a revoked one', async (t) => {
  const database = await testDatabase(t)
  const old = await inventory(t, database, 'keys', 'create', '--name', 'billing')
  const server = await startProgram(t, 'server', { env: { DATABASE_URL: database.url, PORT: '0' } })
  const port = await portOf(server)
  const successor = await inventory(t, database, 'keys', 'rotate', 'billing')
  t.equal(await statusOf(port, old), 200)
  t.equal(await statusOf(port, successor), 200)
  const list: unknown = JSON.parse(await inventory(t, database, 'keys', 'list', '--json'))
  const ids = Array.isArray(list) ? list.map(({ id }) => id) : []
  await inventory(t, database, 'keys', 'revoke', 'billing', '--id', ids[0])
  await eventually('the revoked key to be refused', async () =>
    (await statusOf(port, old)) === 401 ? true : undefined,
  )
  t.equal(await statusOf(port, `${old.slice(0, -1)}x`), 401)
  server.process.kill('SIGTERM')
  const { stdout } = await server.ended
  const lines = stdout
    .split('\n')
    .filter((line) => line.includes('"msg":"request"'))
    .map((line) => JSON.parse(line))
  t.strictSame(
    [lines[0], lines[1], lines.at(-2), lines.at(-1)].map(({ status, key, keyId, keyState }) => ({
      status,
      key,
      keyId,
      keyState,
    })),
    [
      { status: 200, key: 'billing', keyId: ids[0], keyState: undefined },
      { status: 200, key: 'billing', keyId: ids[1], keyState: undefined },
      { status: 401, key: 'billing', keyId: ids[0], keyState: 'revoked' },
      { status: 401, key: null, keyId: null, keyState: undefined },
    ],
  )
})

t.test('a key that is revoked while the database is away from the server never gets in again', async (t) => {
  const database = await testDatabase(t)
  const outage = await outageOf(t, database.url)
  const revoked = await inventory(t, database, 'keys', 'create', '--name', 'billing')
  const other = await inventory(t, database, 'keys', 'create', '--name', 'shop')
  const server = await startProgram(t, 'server', { env: { DATABASE_URL: outage.url, PORT: '0' } })
  const port = await portOf(server)
  t.equal(await statusOf(port, revoked), 200)
  await outage.cut()
  await server.output(/the API keys cannot be read/)
  await inventory(t, database, 'keys', 'revoke', 'billing')
  t.equal(await statusOf(port, revoked), 503)
  await outage.restore()
  await server.output(/the API keys can be read again/)
  t.equal(await statusOf(port, revoked), 401)
  t.equal(await statusOf(port, other), 200)
})
