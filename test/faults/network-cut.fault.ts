import { readFile } from 'node:fs/promises'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { makeServerCertificate } from '../support/certificates.ts'
import { startCommand, succeed } from '../support/command.ts'
import { addMany, readStock } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { readChanges } from '../support/history.ts'
import { cutNetwork, reasonNotToCut } from '../support/network.ts'
import { startOwnServer } from '../support/own-server.ts'
import { startServer, temporaryFolder } from '../support/program.ts'
import { startRelay } from '../support/relay.ts'
import { lateIn, startWriters } from '../support/writers.ts'

const skip = await reasonNotToCut(t)

const pets = Array.from({ length: 20 }, (_, index) => index + 1)

/**
 * Cuts that are longer than a request waits, and how long after their beginning the kernel first sends what was lost again when the
 * network is back, in seconds. Until then, writers have time for newer values.
 */
const CUTS = [
  [8, 12.6],
  [8, 12.6],
  [15, 25.4],
] as const

t.test('no update is made after a newer one when the network is back', { skip }, async (t) => {
  const { ca, settings } = await makeServerCertificate(await temporaryFolder(t))
  const database = await startOwnServer(t, settings)
  await addMany(database, pets.length)
  await succeed(t, database.superuserUrl, 'history on')
  const encrypted = `${database.url.replace('127.0.0.1', 'localhost')}?sslmode=verify-full&sslrootcert=${ca}`
  const ports: number[] = []
  for (const DATABASE_URL of [database.url, encrypted])
    ports.push((await startServer(t, { DATABASE_URL })).port)
  const writers = startWriters(t, ports, pets)
  for (const [cut, sentAgain] of CUTS) {
    await writers.served(1000)
    const restore = await cutNetwork(t, database.port)
    await setTimeout(cut * 1000)
    await restore()
    await setTimeout((sentAgain - cut + 2) * 1000)
    await writers.served(1000)
  }
  await writers.stop()
  const changes = await readChanges(t, database.superuserUrl)
  t.strictSame(lateIn(changes, pets), [])
  t.comment(`${changes.length} changes`)
})

t.test('a command that ends while its COMMIT is on the way changes nothing later', { skip }, async (t) => {
  const database = await startOwnServer(t)
  await addMany(database, 1)
  let isReady = (): void => {}
  const ready = new Promise<void>((resolve) => (isReady = resolve))
  let goOn = (): void => {}
  const cut = new Promise<void>((resolve) => (goOn = resolve))
  let hasCommit = false
  const relay = await startRelay(t, database.superuserUrl, {
    towardsDatabase: (bytes) => {
      hasCommit ||= bytes.includes('COMMIT\0')
      return bytes
    },
    // The response to the empty statement before COMMIT.
    towardsClient: async (bytes) => {
      if (!bytes.includes('I\0\0\0\x04')) return bytes
      isReady()
      await cut
      return bytes
    },
  })
  const input = 'petId,quantity\n1,5\n'
  const command = await startCommand(t, relay.url, 'import - --rows 1', { input })
  await ready
  const { port } = new URL(relay.url)
  const restore = await cutNetwork(t, Number(port))
  goOn()
  const unsent = new RegExp(`:${Number(port).toString(16).toUpperCase().padStart(4, '0')} 01 (?!00000000:)`)
  await eventually('COMMIT to be sent', async () => unsent.test(await readFile('/proc/net/tcp', 'utf8')))
  command.process.kill('SIGTERM')
  t.match(await command.ended, { code: 4, stderr: /unknown whether anything was changed/ })
  t.notOk(hasCommit)
  await restore()
  await eventually('the session to end', async () => {
    const sessions = "SELECT FROM pg_stat_activity WHERE application_name = 'petstore-inventory cli'"
    return (await database.query(sessions)).length === 0
  })
  t.equal(await readStock(database), '1,0,sold')
})
