import { pino } from 'pino'
import t, { type Test } from 'tap'
import { loadConfig } from '../../src/config/config.ts'
import { expose } from '../../src/metrics/families.ts'
import { connectService, type ServiceParts, serviceTimings } from '../../src/service.ts'
import { addEntries, addKey, testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { parseExposition, total } from '../support/exposition.ts'
import { freePort } from '../support/other-program.ts'

/** The components of a service that does not listen, of which one process may have lost its database. */
async function connect(t: Test, databaseUrl: string): Promise<ServiceParts> {
  const config = loadConfig({ DATABASE_URL: databaseUrl, READ_DATABASE_URL: databaseUrl })
  const options = {
    ...config,
    version: '1.2.3',
    databaseUrl,
    connections: 4,
    tracing: undefined,
    primary: undefined,
  }
  const parts = await connectService(options, serviceTimings, pino({ level: 'silent' }))
  t.teardown(parts.close)
  return parts
}

t.test(
  'the metrics of several processes are the sum of their work and the worst of their states',
  async (t) => {
    const database = await testDatabase(t)
    await addEntries(database, [
      ['1', 9, 'available'],
      ['2', 0, 'available'],
    ])
    await addKey(database, 'billing', '3 days')
    const away = new URL(database.url)
    away.port = String(await freePort())
    const ready = await connect(t, database.url)
    const others = [await connect(t, database.url), await connect(t, away.href)]
    await ready.apiKeys.refresh()
    await eventually('the count of the entries', async () =>
      (await ready.metrics(true)).some(
        ({ name, values }) => name === 'inventory_entries' && values.length > 0,
      )
        ? true
        : undefined,
    )
    // The standby is checked only once the service listens.
    for (const { app } of [ready, ...others]) {
      const { standby } = app.inventoryStatistics
      if (standby !== undefined) standby.isInUse = app === ready.app
    }
    for (const first of [true, false]) {
      // Which process is the first is by chance.
      const processes = first ? [ready, ...others] : [...others, ready]
      const metrics = parseExposition(
        await expose(await Promise.all(processes.map((one) => one.metrics(true)))),
      )
      t.equal(total(metrics, 'inventory_ready'), 0, 'one of them is not ready')
      t.equal(total(metrics, 'inventory_not_ready', { reason: 'unreachable' }), 1)
      t.equal(total(metrics, 'inventory_not_ready'), 1)
      t.equal(total(metrics, 'inventory_standby_in_use'), 0)
      t.equal(total(metrics, 'inventory_api_keys_read_timestamp_seconds'), 0, 'one has never read the keys')
      t.equal(total(metrics, 'inventory_entries', { status: 'available' }), 2)
      t.equal(total(metrics, 'inventory_entries_out_of_stock', { status: 'available' }), 1)
      t.equal(total(metrics, 'db_client_connection_max', { db_client_connection_pool_name: 'requests' }), 9)
      const days = (name: string): number =>
        Math.round((total(metrics, name, { key: 'billing' }) - Date.now() / 1000) / 86_400)
      t.equal(days('inventory_api_key_expiry_timestamp_seconds'), 3)
      t.equal(days('inventory_api_key_created_timestamp_seconds'), -1)
    }
  },
)
