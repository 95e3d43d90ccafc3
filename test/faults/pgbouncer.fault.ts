import { readFile } from 'node:fs/promises'
import { setTimeout } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { serverAccount } from '../../src/local/server-process.ts'
import { serviceTimings } from '../../src/service.ts'
import { startApp } from '../support/app.ts'
import { succeed } from '../support/command.ts'
import { addMany, findSessions, readStock, testDatabase, testRole } from '../support/database.ts'
import { errorsIn, readChanges } from '../support/history.ts'
import { json } from '../support/http.ts'
import { onServer } from '../support/on-server.ts'
import { freePort } from '../support/ports.ts'
import { run, startProgram, startServer, temporaryFolder } from '../support/program.ts'

/**
 * A database whose role has the privileges of the server, behind a PgBouncer with few connections and with more settings. `url` is its
 * address by way of PgBouncer, as the role.
 */
async function setUp(t: Test, settings = '') {
  const role = await testRole(t)
  const database = await testDatabase(t)
  await succeed(t, database.url, `migrate up --server-role ${role.name}`)
  const { hostname, port, pathname } = new URL(database.url)
  const listen = await freePort()
  const config = `[databases]
${pathname.slice(1)} = host=${hostname} port=${port || 5432}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${listen}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = users.txt
pool_mode = transaction
default_pool_size = 3
${settings}
`
  const users = `"${role.name}" "${role.password}"\n`
  const cwd = await temporaryFolder(t, { 'pgbouncer.ini': config, 'users.txt': users })
  // It refuses to run as root.
  const options = { ...serverAccount(), cwd, env: process.env }
  await run(t, 'pgbouncer', ['pgbouncer.ini'], options).output(/process up/)
  const url = new URL(role.toUrl(database.url))
  url.host = `127.0.0.1:${listen}`
  return { database, role, url: url.href }
}

t.test('behind PgBouncer in transaction mode, all works over fewer connections than it opens', async (t) => {
  const { database, role, url } = await setUp(t)
  // So short that a list which waits would not get through if it did not raise it for itself.
  const limits = { statement_timeout: '300ms', lock_timeout: '2s', idle_in_transaction_session_timeout: '5s' }
  for (const [name, limit] of Object.entries(limits))
    await database.query(`ALTER ROLE ${role.name} SET ${name} = '${limit}'`)
  const pets = Array.from({ length: 500 }, (_, index) => index + 1)
  await addMany(database, pets.length, 'available')
  await succeed(t, database.url, 'history on')
  const env = { DATABASE_POOLER: 'transaction' }
  const { send, metric, log, close } = await startApp(t, url, { env, timings: serviceTimings })
  t.equal((await send('GET', '/readyz')).status, 200)

  await Promise.all(
    pets.slice(0, 20).map(async (pet) => {
      for (let quantity = 1; quantity <= 20; quantity++) {
        t.equal((await send('PATCH', `/v1/inventory/${pet}`, json({ quantity }))).status, 200)
        const { text } = await send('GET', '/v1/inventory')
        t.match(text, `{"petId":${pet},"quantity":${quantity},`, 'a list shows what was acknowledged')
      }
    }),
  )
  const sessions = await findSessions(database, `usename = '${role.name}'`)
  t.ok(sessions.length <= 3, 'PgBouncer shares its connections')
  const read = await metric('inventory_lists_total', { result: 'read' })
  t.ok(read <= 3, 'each server process reads all entries at most once')
  const changes = await readChanges(t, database.url, '--by tests')
  t.equal(new Set(changes.map(({ requestId }) => requestId)).size, 400, 'each update has its own caller')
  t.strictSame(errorsIn(changes, pets, await readStock(database), []), [])

  const release = await database.hold('LOCK TABLE inventory IN ACCESS EXCLUSIVE MODE')
  const list = send('GET', '/v1/inventory')
  const update = await send('PATCH', '/v1/inventory/1', json({ quantity: 99 }))
  t.equal(update.status, 503, 'the time limit of the role ends an update')
  await setTimeout(500)
  await release()
  t.equal((await list).status, 200, 'but no list, which has one of its own')

  t.strictSame(await onServer(url, 'SHOW statement_timeout'), [{ statement_timeout: '300ms' }])
  await close()
  t.notMatch(JSON.stringify(log), /prepared statement/)
})

t.test('with the documented limits, a locked row delays only its own callers', async (t) => {
  const { database, role, url } = await setUp(t)
  const roles = await readFile('ops/roles.sql', 'utf8')
  const limits = roles.match(/^ALTER ROLE inventory_server SET \w+_timeout = .*;$/gm) ?? []
  t.equal(limits.length, 3)
  for (const limit of limits) await database.query(limit.replace('inventory_server', role.name))
  await addMany(database, 50)
  const { send } = await startServer(t, { DATABASE_URL: url, DATABASE_POOLER: 'transaction' })

  const release = await database.hold('UPDATE inventory SET quantity = 9 WHERE pet_id = 25')
  const answers = await Promise.all(
    Array.from({ length: 50 }, async (_, index) => {
      const { status } = await send('PATCH', `/v1/inventory/${index + 1}`, json({ quantity: 1 }))
      return [index + 1, status]
    }),
  )
  await release()
  const failed = answers.filter(([, status]) => status !== 200)
  t.strictSame(failed, [[25, 503]])
})

for (const [config, reason] of [
  ['', 'unsupported startup parameter'],
  ['ignore_startup_parameters = options', '(the settings of the session did not take effect|unsupported)'],
] as const) {
  t.test(`without the setting, the server and the command line fail and name it ${config}`, async (t) => {
    const { url } = await setUp(t, config)
    const env = { DATABASE_URL: url, PORT: '0' }
    for (const [program, ...args] of [['server'], ['cli', 'status']] as const) {
      const { code, stderr } = await (await startProgram(t, program, { args, env })).ended
      t.equal(code, 1)
      t.match(stderr, new RegExp(`The connection pooler refuses the connection: ${reason}`))
      t.match(stderr, /DATABASE_POOLER=transaction.*OPERATOR_DATABASE_URL/)
    }
  })
}
