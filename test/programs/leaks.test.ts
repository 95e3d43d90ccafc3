import { once } from 'node:events'
import { Agent } from 'node:http'
import t from 'tap'
import { findSessions, testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { createSender, json } from '../support/http.ts'
import { listRequest, updateRequest } from '../support/messages.ts'
import { apiKey, readUsage, startServer } from '../support/program.ts'
import { openRaw } from '../support/raw.ts'

const CALLERS = 30

t.test('requests of every kind and their aborts leave no connection and no memory behind', async (t) => {
  const database = await testDatabase(t, { entries: 10_000 })
  const server = await startServer(t, { DATABASE_URL: database.url })
  const { port, send } = server
  const agent = new Agent({ keepAlive: true, maxSockets: CALLERS })
  const kept = createSender(port, { authorization: `Bearer ${apiKey}` }, agent)
  const [list, update] = [listRequest(), updateRequest(5)]
  const abort = async (bytes: string, after?: 'data'): Promise<void> => {
    const { socket, received } = await openRaw(port)
    socket.write(bytes)
    if (after !== undefined) await Promise.race([once(socket, after), received])
    socket.destroy()
    await received
  }
  const kinds: readonly ((round: number) => Promise<unknown>)[] = [
    () => kept('GET', '/v1/inventory'),
    () => send('GET', '/v1/inventory'),
    () => kept('GET', '/v1/inventory', { headers: { 'accept-encoding': 'gzip' } }),
    (round) => kept('PATCH', `/v1/inventory/${1 + (round % 100)}`, json({ quantity: round })),
    () => kept('PATCH', '/v1/inventory/-1', json({ quantity: 1 })),
    () => kept('PATCH', '/v1/inventory/1', json('{')),
    () => kept('PATCH', '/v1/inventory/1', json('x'.repeat(10_000))),
    () => createSender(port)('GET', '/v1/inventory', { headers: { authorization: 'Bearer x' } }),
    () => abort('garbage\r\n\r\n', 'data'),
    () => abort(list),
    () => abort(list, 'data'),
    () => abort(list.repeat(20), 'data'),
    () => abort(list.slice(0, -10)),
    () => abort(update.slice(0, -13)),
    () => abort(update),
  ]
  const load = async (requests: number): Promise<void> => {
    let left = requests
    const call = async (_: unknown, caller: number): Promise<void> => {
      for (let round = caller; left-- > 0; round++) await kinds[round % kinds.length]?.(round)
    }
    await Promise.all(Array.from({ length: CALLERS }, call))
    // Closes its connections, and opens others when it is used again.
    agent.destroy()
  }
  const usage = () => readUsage(server.process.pid)
  // Its connections to the database are opened as they are needed.
  const maxFiles = ((await usage())?.files ?? 0) + 20
  await load(225)
  const before = await usage()
  await load(750)
  const after = await usage()
  const connections = await findSessions(database, "application_name = 'petstore-inventory server'")
  t.ok(connections.length <= 11, 'as many connections to the database as it may have')
  await eventually(`${maxFiles} open files or fewer`, async () => ((await usage())?.files ?? 0) <= maxFiles)
  // The lists meanwhile had twice as much.
  if (before !== undefined && after !== undefined)
    t.ok(after.memory < before.memory + 100, `${before.memory} MB before, ${after.memory} MB after`)
  const { code, stdout } = await server.stop()
  t.equal(code, 0, 'nothing keeps it from stopping')
  t.notMatch(stdout, /"level":(50|60)/)
})
