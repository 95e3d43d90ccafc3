import t from 'tap'
import { type DatabaseOptions, openDatabase, requestLimits } from '../../../src/database/pool/pool.ts'
import { testDatabase } from '../../support/database.ts'

/** What a session of such a pool has in force. */
async function settingsOf(
  options: Pick<DatabaseOptions, 'url' | 'settings' | 'behindPooler'>,
): Promise<unknown> {
  const database = openDatabase({ size: 1, limits: requestLimits, onConnectionLost: () => {}, ...options })
  try {
    const [row] = await database.query(
      `SELECT current_setting('random_page_cost') AS cost, current_setting('work_mem') AS memory,
              current_setting('lock_timeout') AS lock`,
    )
    return row
  } finally {
    await database.close()
  }
}

const settings = { random_page_cost: '1.1' }

t.test('a session has the settings of its pool', async (t) => {
  const { url } = await testDatabase(t)
  t.match(await settingsOf({ url }), { cost: '4', memory: '4MB' })
  t.match(await settingsOf({ url, settings }), { cost: '1.1', memory: '4MB' })
})

t.test('options in the address stay, and count where both set the same', async (t) => {
  const { url } = await testDatabase(t)
  const options = '-c work_mem=8MB -c random_page_cost=2'
  const address = `${url}?options=${encodeURIComponent(options)}`
  t.match(await settingsOf({ url: address, settings }), { cost: '2', memory: '8MB' })
})

t.test('a limit in the address counts before that of the pool', async (t) => {
  const { url } = await testDatabase(t)
  t.match(await settingsOf({ url, settings }), { lock: '250ms' })
  t.match(await settingsOf({ url: `${url}?lock_timeout=700`, settings }), { lock: '700ms', cost: '1.1' })
})

t.test('behind a pooler, a session sets nothing for itself', async (t) => {
  const { url } = await testDatabase(t)
  t.match(await settingsOf({ url, settings, behindPooler: true }), { cost: '4', lock: '0' })
})
