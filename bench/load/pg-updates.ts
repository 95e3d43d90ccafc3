/** Sends one-row updates directly with pg as fast as they are committed, as pgbench does with prepared statements. */
import { randomInt } from 'node:crypto'
import pg from 'pg'
import { receiveOrder, reportShare } from './processes.ts'

/** One process's share of the updates. */
export interface PgUpdates {
  readonly databaseUrl: string
  readonly clients: number
  readonly seconds: number
  readonly entries: number
}

const order = await receiveOrder<PgUpdates>()
const clients = Array.from(
  { length: order.clients },
  () => new pg.Client({ connectionString: order.databaseUrl }),
)
await Promise.all(clients.map((client) => client.connect()))

const times: number[] = []
let errors = 0
const start = performance.now()
const end = start + order.seconds * 1000

async function updateUntilEnd(client: pg.Client): Promise<void> {
  for (let sent = performance.now(); sent < end; sent = performance.now()) {
    const { rowCount } = await client.query({
      name: 'update',
      text: 'UPDATE inventory SET quantity = $2 WHERE pet_id = $1',
      values: [randomInt(1, order.entries + 1), randomInt(1000)],
    })
    times.push(performance.now() - sent)
    if (rowCount !== 1) errors += 1
  }
}

await Promise.all(clients.map(updateUntilEnd))
const seconds = (performance.now() - start) / 1000
await Promise.all(clients.map((client) => client.end()))
reportShare({ times: Float64Array.from(times), seconds, bytes: 0, errors })
