import pg from 'pg'
import t, { type Test } from 'tap'
import { succeed } from '../support/command.ts'
import { addMany } from '../support/database.ts'
import { shellIn } from '../support/deployment.ts'
import { eventually } from '../support/eventually.ts'
import { json } from '../support/http.ts'
import { onServer } from '../support/on-server.ts'
import { startServer } from '../support/program.ts'

const FILL = '/var/lib/postgresql/fill'

/** Starts a PostgreSQL on a small disk of its own. `fill` takes all of its space, and `empty` gives that back. */
async function startSmallServer(t: Test) {
  const sh = shellIn('.')
  const id = await sh(`docker run --detach --rm --tmpfs /var/lib/postgresql:size=200m \
    --publish 127.0.0.1::5432 --env POSTGRES_PASSWORD=small postgres:18-alpine`)
  t.teardown(() => sh(`docker kill ${id}`))
  const address = await sh(`docker port ${id} 5432/tcp`)
  const url = `postgres://postgres:small@${address}/postgres`
  await eventually('PostgreSQL', () => onServer(url, 'SELECT').catch(() => false as const))
  return {
    url,
    fill: () => sh(`docker exec ${id} dd if=/dev/zero of=${FILL} bs=8k || true`),
    empty: () => sh(`docker exec ${id} rm ${FILL}`),
  }
}

t.test('with a full disk, lists are served, and updates get a 503', async (t) => {
  const { url, fill, empty } = await startSmallServer(t)
  await succeed(t, url, 'migrate up')
  const reader = new pg.Client({ connectionString: url })
  await reader.connect()
  t.teardown(() => reader.end())
  await addMany({ query: (text) => onServer(url, text) }, 1000)
  const { send } = await startServer(t, { DATABASE_URL: url })

  await fill()
  // While a snapshot is open, PostgreSQL cannot reuse the space of outdated rows.
  await reader.query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM inventory')
  const refused = await eventually('an update that finds no space', async () => {
    const { status } = await send('PATCH', '/v1/inventory/1', json({ quantity: 5 }))
    return status === 200 ? undefined : status
  })
  t.equal(refused, 503)
  t.equal((await send('GET', '/v1/inventory')).status, 200)
  t.equal((await send('GET', '/readyz')).status, 200)

  await empty()
  t.equal((await send('PATCH', '/v1/inventory/1', json({ quantity: 7 }))).status, 200)
})
