/** Prints the OpenAPI document that the service serves at `/openapi.json`. Needs no database. */

import { pino } from 'pino'
import { Registry } from 'prom-client'
import { version } from '../src/config/version.ts'
import { createPool } from '../src/database/pool.ts'
import { PrimaryServer } from '../src/database/primary.ts'
import { requestLimits } from '../src/database/time-limits.ts'
import { appTimeouts, buildApp } from '../src/http/app.ts'
import { listReader } from '../src/inventory/list/reads/reader.ts'
import { updateRepository } from '../src/inventory/updates/repository.ts'
import { requestMetrics } from '../src/metrics/request-metrics.ts'

// Never connects, because no statement is sent.
const database = createPool({
  url: 'postgres://localhost/none',
  server: new PrimaryServer(() => {}),
  size: 1,
  limits: requestLimits,
  onConnectionLost: () => {},
})
const app = await buildApp({
  version,
  logger: pino({ level: 'silent' }),
  apiKeys: { find: () => undefined },
  inventory: { reader: listReader(database), repository: updateRepository(database, database) },
  readiness: async () => undefined,
  metrics: requestMetrics(new Registry()),
  publicUrls: [],
  trustProxy: [],
  timeouts: appTimeouts,
})
await app.ready()
console.log(JSON.stringify(app.swagger(), null, 2))
