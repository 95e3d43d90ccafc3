import type pg from 'pg'
import { pino } from 'pino'
import t, { type Test } from 'tap'
import { ApiKeyCache, apiKeyIntervals } from '../../src/api-keys/cache.ts'
import { hashApiKey, makeApiKey } from '../../src/api-keys/key.ts'
import type { StatementRunner } from '../../src/database/database.ts'
import { openDatabase } from '../../src/database/pool.ts'
import { probeLimits } from '../../src/database/pool-options.ts'
import { addKey, testDatabase } from '../support/database.ts'
import { startRelay } from '../support/relay.ts'

interface Opened {
  readonly cache: ApiKeyCache
  /** How often the active keys were read. */
  readonly reads: () => number
}

/** A key cache over a real database that counts its reads. */
function open(t: Test, url: string): Opened {
  const database = openDatabase({ url, size: 1, limits: probeLimits, onConnectionLost: () => {} })
  let reads = 0
  const counted: StatementRunner = {
    query<Row extends pg.QueryResultRow>(text: string) {
      reads += 1
      return database.query<Row>(text)
    },
  }
  const cache = new ApiKeyCache(counted, apiKeyIntervals, pino({ level: 'silent' }))
  t.teardown(async () => {
    await cache.close()
    await database.close()
  })
  return { cache, reads: () => reads }
}

/** The owner of a key, as the cache returns it. */
function ownerOf(name: string, key: string): { name: string; id: string } {
  return { name, id: hashApiKey(key).toString('hex', 0, 6) }
}

t.test('the cache has the scope of each key, and when the last key of a name expires', async (t) => {
  const database = await testDatabase(t)
  const { cache } = open(t, database.url)
  const reader = await addKey(database, 'reader', '3 days')
  await database.query("UPDATE api_keys SET is_read_only = true WHERE name = 'reader'")
  await addKey(database, 'unending')
  await addKey(database, 'past', '-1 hour')
  const old = await addKey(database, 'rotated', '1 day')
  await database.query("UPDATE api_keys SET revoked_at = now() + interval '1 hour' WHERE name = 'rotated'")
  await addKey(database, 'rotated', '2 days')
  await addKey(database, 'shortened', '9 days')
  await database.query("UPDATE api_keys SET revoked_at = now() + interval '5 days' WHERE name = 'shortened'")
  await addKey(database, 'shortened', '2 days')
  await cache.refresh()
  t.match(cache.find(reader), { name: 'reader', isReadOnly: true })
  t.notMatch(cache.find(old), { isReadOnly: true })
  const daysFromNow = (time: number): number => Math.round((time - Date.now()) / 86_400_000)
  const days = Array.from(cache.validity(), ([name, validUntil]) => [name, daysFromNow(validUntil)])
  t.strictSame(Object.fromEntries(days), { reader: 3, rotated: 2, shortened: 5 })
  await database.query("UPDATE api_keys SET is_read_only = false WHERE name = 'reader'")
  await cache.refresh()
  t.strictSame(cache.find(reader), ownerOf('reader', reader), 'an operator may let it write')
})

t.test('unknown keys cause at most a few queries a second', async (t) => {
  const database = await testDatabase(t)
  const { cache, reads } = open(t, database.url)
  await cache.refresh()
  const before = reads()
  const start = performance.now()
  while (performance.now() - start < 500) {
    const found = await Promise.all(Array.from({ length: 200 }, () => cache.find(makeApiKey())))
    if (found.some((owner) => owner !== undefined)) t.fail('an unknown key was let in')
  }
  const seconds = (performance.now() - start) / 1000
  t.ok(reads() - before <= 4 * seconds + 2, `${reads() - before} reads in ${seconds} s`)
})

t.test("a key ends at its time by the database's clock, with the database away too", async (t) => {
  const database = await testDatabase(t)
  const outage = await startRelay(t, database.url)
  const key = await addKey(database, 'billing', '1 hour')
  const unending = await addKey(database, 'shop')
  const { cache } = open(t, outage.url)
  for (const hours of [-2, 2]) {
    const skewed = Date.now() + hours * 3_600_000
    t.capture(Date, 'now', () => skewed)
    await cache.refresh()
    t.strictSame(
      cache.find(key),
      ownerOf('billing', key),
      `with the clock of the service off by ${hours} hours`,
    )
  }
  outage.fail()
  const later = performance.now() + 3_600_000
  t.capture(performance, 'now', () => later)
  t.equal(cache.find(key), undefined)
  t.strictSame(cache.find(unending), ownerOf('shop', unending))
})
