import t, { type Test } from 'tap'
import { startApp } from '../support/app.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { startProgram } from '../support/program.ts'
import { type Relay, startRelay } from '../support/relay.ts'

/**
 * A way to a server that lacks a feature. Statements that contain `feature` reach PostgreSQL with another word of the same length
 * in its place, which PostgreSQL does not know: the error is its own.
 */
function lackingServer(t: Test, url: string, feature: string): Promise<Relay> {
  const unknown = feature.replace(/[a-z](?=[^a-z]*$)/i, (last) => (last === 'q' ? 'x' : 'q'))
  return startRelay(t, url, {
    // pg writes a statement at once, so it arrives in one piece.
    towardsDatabase: (bytes) => Buffer.from(bytes.toString('latin1').replaceAll(feature, unknown), 'latin1'),
  })
}

t.test('a server that lacks a feature is a reason not to be ready, and no request gets a 500', async (t) => {
  const database = await testDatabase(t)
  await addEntries(database, [['1', 1, 'sold']])
  const server = await lackingServer(t, database.url, 'SKIP LOCKED')

  // A process that cannot reach the server yet says it on /readyz.
  server.fail()
  const { send, update } = await startApp(t, server.url)
  await server.restore()
  const readiness = await eventually('the service to reach the server', async () => {
    const answer = await send('GET', '/readyz')
    return answer.text.includes('cannot be reached') ? undefined : answer
  })
  t.equal(readiness.status, 503)
  t.match(readiness.text, 'The database does not support a statement that this service needs: ')
  t.match(readiness.text, /syntax error at or near/)
  const answers = await Promise.all([
    send('GET', '/v1/inventory'),
    ...Array.from({ length: 11 }, () => update(1, 3)),
  ])
  for (const { status, text } of answers) t.ok([200, 503].includes(status), `${status}: ${text}`)
})

t.test('the program ends with one sentence', async (t) => {
  const database = await testDatabase(t)
  const server = await lackingServer(t, database.url, 'xmin')
  // On a busy machine the check may get no answer in time, so that the server starts.
  const { code, stderr } = await eventually('the check to get an answer', async () => {
    const started = await startProgram(t, 'server', { env: { DATABASE_URL: server.url, PORT: '0' } })
    return Promise.race([
      started.ended,
      started.output(/listening/i).then(
        () => false as const,
        () => started.ended,
      ),
    ])
  })
  t.equal(code, 1)
  t.match(
    stderr,
    'petstore-inventory: The database does not support a statement that this service needs: column pg_class.xmiq does not exist. See docs/limits.md.',
  )
  t.notMatch(stderr, /\n {4}at /, 'no stack trace')
})
