import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { importLines, succeed } from '../support/command.ts'
import { addMany, readStock } from '../support/database.ts'
import { changesIn, errorsIn } from '../support/history.ts'
import { startLoad } from '../support/load.ts'
import { startOwnServer } from '../support/own-server.ts'
import { freePort } from '../support/ports.ts'
import { apiKey, type RunningServer, startServer } from '../support/program.ts'

const pets = [1, 2, 3, 4, 5, 6, 7, 8]
const ROUNDS = 4

t.test('no crash of PostgreSQL or of the service loses, invents or repeats a change', async (t) => {
  const database = await startOwnServer(t)
  await addMany(database, pets.length, 'available')
  await succeed(t, database.superuserUrl, 'history on')
  const ports = [await freePort(), await freePort()]
  const start = (port: number): Promise<RunningServer> =>
    startServer(t, { DATABASE_URL: database.url, API_KEYS: `caller:${apiKey}`, PORT: String(port) })
  const servers = await Promise.all(ports.map(start))
  const load = startLoad(t, { ports, clients: 64, pets })
  const more = (): Promise<void> => load.served(600)

  for (let round = 0; round < ROUNDS; round++) {
    await more()
    await database.kill()
    await setTimeout(200)
    await database.start()
    await more()
    await database.crash()
    await more()
    servers[round % 2]?.process.kill('SIGKILL')
    await setTimeout(100)
    servers[round % 2] = await start(ports[round % 2] ?? 0)
    await database.query(`UPDATE inventory SET quantity = ${19e8 + round} WHERE pet_id = 3`)
    await importLines(t, database.superuserUrl, 'upsert', `1,${2e9 + round},`, `2,${2e9 + round},`)
    await importLines(t, database.superuserUrl, 'upsert', '9,1,')
    const all = pets.map((pet) => `${pet},${21e8 + round},`)
    await importLines(t, database.superuserUrl, 'replace', ...all)
  }
  await more()
  await load.stop()

  const changes = changesIn(await succeed(t, database.superuserUrl, 'history --json')).reverse()
  const counts = new Map<string | null, number>()
  for (const { requestId } of changes) counts.set(requestId, (counts.get(requestId) ?? 0) + 1)
  t.strictSame(errorsIn(changes, pets, await readStock(database), load.updates), [])
  const unknown = load.failures.filter(({ kind }) => kind === 'update').map(({ id }) => counts.get(id) ?? 0)
  t.ok(unknown.every((count) => count <= 1))
  t.equal(counts.get(null), (1 + 2 + 1 + pets.length + 1) * ROUNDS, 'statements of SQL and imports')
  t.ok(changes.every(({ key, requestId }) => (key === 'caller') === (requestId !== null)))
  const made = unknown.filter((count) => count === 1).length
  t.comment(
    `${load.updates.length} acknowledged, ${unknown.length} of unknown outcome, of which ${made} were made; ${changes.length} changes`,
  )
})
