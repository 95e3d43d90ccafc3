import t from 'tap'
import { REFRESH_MS } from '../../src/api-keys/cache.ts'
import { probeLimits } from '../../src/database/time-limits.ts'
import { apiKey, startApp, startService } from '../support/app.ts'
import { succeed } from '../support/command.ts'
import { testDatabase } from '../support/database.ts'
import { eventually, until } from '../support/eventually.ts'
import { createSender } from '../support/http.ts'
import { startRelay } from '../support/relay.ts'

/** Requests a list with a key, and resolves with the status. */
async function list(port: number, key: string): Promise<number> {
  return (await createSender(port, { authorization: `Bearer ${key}` })('GET', '/v1/inventory')).status
}

t.test('a running server takes a new key at once, refuses a revoked one, and writes no key', async (t) => {
  const { database, port, log, close } = await startService(t)
  const { url } = database
  const old = await succeed(t, url, 'keys create --name billing')
  t.equal(await list(port, old), 200)
  const successor = await succeed(t, url, 'keys rotate billing')
  t.equal(await list(port, successor), 200)
  t.equal(await list(port, old), 200, 'the old one has not ended yet')
  t.equal(await list(port, apiKey), 200, 'API_KEYS works beside it')
  const listed: readonly { id: string }[] = JSON.parse(await succeed(t, url, 'keys list --json'))
  const [first, second] = listed.map(({ id }) => id)
  await succeed(t, url, `keys revoke billing --id ${first}`)
  t.ok(REFRESH_MS + probeLimits.connect + probeLimits.answer <= 5000, 'an interval and one query')
  await eventually('the revoked key to be refused', async () => (await list(port, old)) === 401)
  t.equal(await list(port, successor), 200)
  t.equal(await list(port, `${old.slice(0, -1)}x`), 401)
  await close()
  const lines = log.filter(({ msg }) => msg === 'request')
  const logged = [...lines.slice(0, 4), ...lines.slice(-3)]
  t.match(logged, [
    { status: 200, key: 'billing', keyId: first },
    { status: 200, key: 'billing', keyId: second },
    { status: 200, key: 'billing', keyId: first },
    { status: 200, key: 'tests', keyId: null },
    { status: 401, key: null, keyId: null },
    { status: 200, key: 'billing', keyId: second },
    { status: 401, key: null, keyId: null },
  ])
  t.strictSame(await database.query('SELECT FROM api_keys WHERE last_used_at IS NOT NULL'), [])
  for (const secret of [old, successor]) t.notMatch(JSON.stringify(log), secret)
})

t.test('a key that is revoked while the database is away from the server never gets in again', async (t) => {
  const { url } = await testDatabase(t)
  const outage = await startRelay(t, url)
  const revoked = await succeed(t, url, 'keys create --name billing')
  const other = await succeed(t, url, 'keys create --name shop')
  const { port, log } = await startApp(t, outage.url)
  const isLogged = (message: RegExp): boolean => log.some(({ msg }) => message.test(String(msg)))
  t.equal(await list(port, revoked), 200)
  outage.fail()
  await until('the keys to be read in vain', () => isLogged(/^the API keys cannot be read/))
  await succeed(t, url, 'keys revoke billing')
  t.equal(await list(port, revoked), 503)
  await outage.restore()
  await until('the keys to be read', () => isLogged(/^the API keys can be read again/))
  t.equal(await list(port, revoked), 401)
  t.equal(await list(port, other), 200)
})
