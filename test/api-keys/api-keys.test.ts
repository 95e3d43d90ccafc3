import { pino } from 'pino'
import t, { type Test } from 'tap'
import { ApiKeyCache } from '../../src/api-keys/cache.ts'
import { hashApiKey, isApiKey, makeApiKey } from '../../src/api-keys/key.ts'
import { addKey, testDatabase } from '../support/database.ts'
import { openPool } from '../support/pool.ts'
import { countingFilter, startRelay } from '../support/relay.ts'

/** A key cache over a real database, and the way to that. */
async function openCache(t: Test, filters?: Parameters<typeof startRelay>[2]) {
  const database = await testDatabase(t)
  const relay = await startRelay(t, database.url, filters)
  const { pool } = await openPool(t, { url: relay.url })
  const cache = new ApiKeyCache(pool, [], pino({ level: 'silent' }))
  t.teardown(() => cache.close())
  return { database, relay, cache }
}

/** The owner of a key, as the cache returns it. */
const toOwner = (name: string, key: string) => ({ name, id: hashApiKey(key).slice(0, 12) })

t.test('unknown keys cause at most a few queries a second', async (t) => {
  const reads = countingFilter('FROM api_keys')
  const { cache } = await openCache(t, { towardsDatabase: reads.filter })
  await cache.refresh()
  const before = reads.count
  const start = performance.now()
  while (performance.now() - start < 200) {
    const found = await Promise.all(Array.from({ length: 200 }, () => cache.find(makeApiKey())))
    if (found.some((owner) => owner !== undefined)) t.fail('an unknown key was let in')
  }
  const seconds = (performance.now() - start) / 1000
  const further = reads.count - before
  t.ok(further <= 4 * seconds + 2, `${further} reads in ${seconds} s`)
})

t.test('a read costs what is in use, and not what the table has', async (t) => {
  let bytes = 0
  const towardsClient = (part: Buffer): Buffer => {
    bytes += part.length
    return part
  }
  const { database, cache } = await openCache(t, { towardsClient })
  const key = await addKey(database, 'billing')
  t.strictSame(await cache.find(key), toOwner('billing', key))
  const measureBytes = async (work: () => unknown): Promise<number> => {
    const before = bytes
    await work()
    return bytes - before
  }
  const few = await measureBytes(() => cache.refresh())
  await database.query(`INSERT INTO api_keys (name, digest)
    SELECT 'k' || n, sha256(n::text::bytea) FROM generate_series(1, 5000) n`)
  const many = await measureBytes(async () => {
    await cache.refresh()
    await cache.find(makeApiKey())
  })
  t.ok(many < few + 1000, `${few} bytes, then ${many}`)
  await database.query("DELETE FROM api_keys WHERE name = 'billing'")
  await cache.refresh()
  t.equal(await cache.find(key), undefined, 'a deleted key ends, too')
})

t.test("a key ends at its time by the database's clock, with the database away too", async (t) => {
  const { database, relay, cache } = await openCache(t)
  const key = await addKey(database, 'billing', '1 hour')
  const unending = await addKey(database, 'shop')
  for (const known of [key, unending]) await cache.find(known)
  for (const hours of [-2, 2]) {
    const skewed = Date.now() + hours * 3_600_000
    t.capture(Date, 'now', () => skewed)
    await cache.refresh()
    t.strictSame(cache.find(key), toOwner('billing', key), `the service's clock is off by ${hours} hours`)
  }
  relay.fail()
  const later = performance.now() + 3_600_000
  t.capture(performance, 'now', () => later)
  t.equal(cache.find(key), undefined)
  t.strictSame(cache.find(unending), toOwner('shop', unending))
})

const digits = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

t.test('a key is a prefix, 43 random digits and a checksum, and never the same twice', async (t) => {
  const keys = Array.from({ length: 1000 }, makeApiKey)
  t.equal(new Set(keys).size, keys.length)
  for (const key of keys) {
    if (!/^inv_[A-Za-z0-9]{49}$/.test(key) || !isApiKey(key)) t.fail(key)
  }
  const first = new Set(keys.map((key) => key.charAt(4)))
  t.ok(first.size > 50, 'the highest digit is random as well')
})

t.test('a typing error is noticed wherever it is', async (t) => {
  const key = makeApiKey()
  for (let at = 0; at < key.length; at += 1) {
    for (const wrong of digits) {
      if (wrong === key.charAt(at)) continue
      if (isApiKey(key.slice(0, at) + wrong + key.slice(at + 1))) t.fail(`${wrong} at ${at} of ${key}`)
    }
  }
  for (const wrong of ['', 'inv_', key.slice(1), `${key}0`, ` ${key}`, `${key}\n`, key.toUpperCase()]) {
    t.notOk(isApiKey(wrong), wrong)
  }
})
