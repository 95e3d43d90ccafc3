import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import pg from 'pg'
import t, { type Test } from 'tap'
import { inventory, succeed } from '../support/command.ts'
import { eventually } from '../support/eventually.ts'
import { json } from '../support/http.ts'
import { startServer } from '../support/running-server.ts'

const FILL = '/var/lib/postgresql/fill'
const WARNING = /^Warning .*the disk of PostgreSQL is full: writes fail/m

interface SmallServer {
  readonly url: string
  /** Runs a command beside PostgreSQL, whose failure is ignored. */
  run(...command: readonly string[]): Promise<void>
}

/** Starts a PostgreSQL on a small disk of its own. */
async function startSmallServer(t: Test): Promise<SmallServer> {
  const docker = async (...args: readonly string[]): Promise<string> =>
    (await promisify(execFile)('docker', args)).stdout.trim()
  const id = await docker(
    ...[
      'run',
      '--detach',
      '--rm',
      '--tmpfs',
      '/var/lib/postgresql:size=200m',
      '--publish',
      '127.0.0.1::5432',
    ],
    ...['--env', 'POSTGRES_PASSWORD=small', 'postgres:18-alpine'],
  )
  t.teardown(() => docker('kill', id))
  const address = await docker('port', id, '5432/tcp')
  const url = `postgres://postgres:small@${address}/postgres`
  await eventually('PostgreSQL', async () => {
    const client = new pg.Client({ connectionString: url })
    const isConnected = await client.connect().then(
      () => true,
      () => false,
    )
    await client.end()
    return isConnected
  })
  return {
    url,
    run: (...command) =>
      docker('exec', id, ...command).then(
        () => {},
        () => {},
      ),
  }
}

t.test('with a full disk, lists are served, updates get a 503, and status says why', async (t) => {
  const { url, run } = await startSmallServer(t)
  await succeed(t, url, 'migrate', 'up')
  const reader = new pg.Client({ connectionString: url })
  await reader.connect()
  t.teardown(() => reader.end())
  await reader.query("INSERT INTO inventory SELECT id, 0, 'available' FROM generate_series(1, 1000) AS id")
  const { send } = await startServer(t, { DATABASE_URL: url })
  t.notMatch(await succeed(t, url, 'status'), WARNING)

  await run('dd', 'if=/dev/zero', `of=${FILL}`, 'bs=8k')
  t.match(await succeed(t, url, 'status'), WARNING)
  // While a snapshot is open, PostgreSQL cannot reuse the space of outdated rows.
  await reader.query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM inventory')
  const refused = await eventually('an update that finds no space', async () => {
    const { status } = await send('PATCH', '/v1/inventory/1', json({ quantity: 5 }))
    return status === 200 ? undefined : status
  })
  t.equal(refused, 503)
  t.equal((await send('GET', '/v1/inventory')).status, 200)
  t.equal((await send('GET', '/readyz')).status, 200)

  await run('rm', FILL)
  t.equal((await send('PATCH', '/v1/inventory/1', json({ quantity: 7 }))).status, 200)
  t.notMatch((await inventory(t, url, 'status')).stdout, WARNING)
})
