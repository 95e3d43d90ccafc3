import { createHash } from 'node:crypto'
import t, { type Test } from 'tap'
import { REFRESH_MS } from '../../src/api-keys/cache.ts'
import type { ApiKey } from '../../src/api-keys/stored-keys.ts'
import { probeLimits } from '../../src/database/time-limits.ts'
import { apiKey, startApp, startService } from '../support/app.ts'
import { inventory, succeed } from '../support/command.ts'
import { addKey, testDatabase } from '../support/database.ts'
import { eventually, until } from '../support/eventually.ts'
import { createSender } from '../support/http.ts'
import { startRelay } from '../support/relay.ts'

/** The commands on the keys of a new database. */
async function setUp(t: Test) {
  const database = await testDatabase(t)
  return {
    database,
    keys: (command: string) => inventory(t, database.url, `keys ${command}`),
    listed: async (): Promise<readonly ApiKey[]> =>
      JSON.parse(await succeed(t, database.url, 'keys list --all --json')),
  }
}

/** Requests a list with a key, and resolves with the status. */
async function list(port: number, key: string): Promise<number> {
  return (await createSender(port, { authorization: `Bearer ${key}` })('GET', '/v1/inventory')).status
}

const toStates = (keys: readonly ApiKey[]): string[] => keys.map(({ state }) => state)

t.test('create prints the key alone on standard output, and keeps nothing but its digest', async (t) => {
  const { database, keys, listed } = await setUp(t)
  t.strictSame(await listed(), [])
  const { stdout, stderr } = await keys('create --name billing')
  t.match(stdout, /^inv_[A-Za-z0-9]{49}\n$/)
  const key = stdout.trim()
  t.match(stderr, /^The key billing \([0-9a-f]{12}\) does not expire\. It is shown only once:\n$/)
  const digest = createHash('sha256').update(key).digest('hex')
  const stored = { name: 'billing', digest: `\\x${digest}`, expires_at: null, revoked_at: null }
  t.match(await database.query('SELECT * FROM api_keys'), [stored])
  await keys('create --name shop --expires 1d')
  const table = await keys('list')
  const time = '\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z'
  t.match(table.stdout, /^NAME +ID +STATE +CREATED +EXPIRES +REVOKED +ACCESS\n/)
  t.match(table.stdout, new RegExp(`^shop +[0-9a-f]{12} +active +${time} +${time} +- +read-write$`, 'm'))
  t.match(await listed(), [
    { name: 'billing', state: 'active', createdAt: /\dZ$/, expiresAt: null, revokedAt: null },
    { name: 'shop', state: 'active', expiresAt: /\dZ$/ },
  ])
  t.notMatch(stderr + table.stdout + JSON.stringify(await listed()), new RegExp(`${key}|${digest}`))
})

t.test('a name has one active key, and is free again when that has expired or is revoked', async (t) => {
  const { database, keys, listed } = await setUp(t)
  const outcomes = await Promise.all([1, 2].map(() => keys('create --name billing')))
  t.strictSame(outcomes.map(({ code }) => code).sort(), [0, 1])
  const stderr =
    /^inventory: A key named "billing" already exists\. Replace it with "inventory keys rotate billing"/
  t.match(await keys('create --name billing'), { code: 1, stdout: '', stderr })
  const revoked = /^The key billing \([0-9a-f]{12}\) is revoked\.\n$/
  t.match(await keys('revoke billing'), { code: 0, stdout: '', stderr: revoked })
  t.match(await keys('revoke billing'), { code: 1, stderr: /There is no active key named "billing"/ })
  t.equal((await keys('create --name billing')).code, 0)
  await database.query(
    "UPDATE api_keys SET created_at = now() - interval '2 days', expires_at = now() - interval '1 day' WHERE revoked_at IS NULL",
  )
  t.match(await keys('rotate billing'), { code: 1, stderr: /There is no active key named "billing"/ })
  t.equal((await keys('create --name billing')).code, 0)
  t.strictSame(toStates(await listed()), ['expired', 'revoked', 'active'])
})

t.test('rotate makes a key like the old one, which ends after the overlap', async (t) => {
  const { database, keys, listed } = await setUp(t)
  const old = await keys('create --name billing --expires 2w --read-only')
  t.match(old.stderr, /^The key billing \([0-9a-f]{12}\) is read-only and expires /)
  const { stdout, stderr } = await keys('rotate billing --overlap 30m')
  t.match(stdout, /^inv_[A-Za-z0-9]{49}\n$/)
  t.not(stdout, old.stdout)
  t.match(stderr, /^The key billing .* is read-only and expires .*Z\. It is shown/)
  t.match(await listed(), [{ readOnly: true }, { readOnly: true }])
  t.match((await keys('list')).stdout, /billing .* read-only\n/)
  const spans = await database.query(
    `SELECT expires_at - created_at = interval '14 days' AS lifetime,
            array_agg(revoked_at - now() BETWEEN interval '00:29' AND interval '00:30' ORDER BY created_at) AS overlaps
     FROM api_keys GROUP BY 1`,
  )
  t.strictSame(spans, [{ lifetime: 't', overlaps: '{t,NULL}' }])
  await Promise.all([1, 2].map(() => succeed(t, database.url, 'keys rotate billing')))
  const counts = `SELECT count(*) FILTER (WHERE revoked_at IS NULL) AS active, count(*) FILTER (WHERE revoked_at > now()) AS ending,
    count(*) FILTER (WHERE revoked_at IS NULL AND expires_at < now() + interval '2 days') AS soon FROM api_keys`
  t.strictSame(await database.query(counts), [{ active: '1', ending: '1', soon: '0' }], 'also at once')
  await keys('rotate billing --overlap 0h --expires 1d')
  t.strictSame(await database.query(counts), [{ active: '1', ending: '0', soon: '1' }])
  await keys('rotate billing')
  await keys('revoke billing')
  t.strictSame(await database.query(counts), [{ active: '0', ending: '0', soon: '0' }])
})

t.test('an infinite time, or one before Christ, concerns its own key only, and is listed', async (t) => {
  const { database, keys, listed } = await setUp(t)
  await database.query("UPDATE pgmigrations SET run_on = 'infinity'")
  const rows = [
    ['for_ever', 200, 'active', "expires_at = 'infinity', created_at = '-infinity'"],
    ['ending', 200, 'ending', "revoked_at = 'infinity'"],
    ['past', 401, 'expired', "expires_at = '0044-03-15 BC', created_at = '-infinity'"],
  ] as const
  const { port, send } = await startApp(t, database.url)
  for (const [name, status, , change] of rows) {
    const key = await addKey(database, name)
    await database.query(`UPDATE api_keys SET ${change} WHERE name = '${name}'`)
    t.equal(await list(port, key), status, name)
  }
  t.equal((await send('GET', '/readyz')).status, 200)
  t.strictSame(toStates(await listed()).sort(), rows.map(([, , state]) => state).sort())
  t.match(await keys('list'), { code: 0, stdout: /^for_ever +\w+ +active +-infinity +infinity /m })
  t.match(await keys('rotate for_ever'), { code: 0, stderr: /does not expire/ })
})

t.test('a running server takes a new key at once, refuses a revoked one, and logs which', async (t) => {
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
  const revoke = `keys revoke billing --id ${first}`
  await succeed(t, url, revoke)
  t.equal((await inventory(t, url, revoke)).code, 1, 'it has ended')
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
