import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer, request } from 'node:http'
import type { Test } from 'tap'
import { apiKey, startApp } from './app.ts'
import { addEntries, testDatabase } from './database.ts'

/** No JavaScript number is this one. */
const PET = '9007199254740993'

interface Outcome {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** An example of a caller, and the service for it to call. */
export interface Example {
  /** Has it set the quantity of a pet. */
  run(petId: string, quantity: string, port?: number): Promise<Outcome>
  /** Where the service listens. */
  readonly port: number
}

/** Starts the service with two entries, to be called by an example that is started by a command. */
export async function exampleOf(t: Test, command: string, args: readonly string[]): Promise<Example> {
  const database = await testDatabase(t)
  await addEntries(database, [
    ['1', 12, 'available'],
    [PET, 7, 'pending'],
  ])
  const service = await startApp(t, database.url)
  return {
    port: service.port,
    run: async (petId, quantity, port = service.port) => {
      const env = { ...process.env, INVENTORY_URL: `http://127.0.0.1:${port}/v1`, INVENTORY_KEY: apiKey }
      const child = spawn(command, [...args, petId, quantity], { env, stdio: ['ignore', 'pipe', 'pipe'] })
      let stdout = ''
      let stderr = ''
      child.stdout.on('data', (chunk) => (stdout += chunk))
      child.stderr.on('data', (chunk) => (stderr += chunk))
      const [code] = await once(child, 'close')
      return { code, stdout, stderr }
    },
  }
}

/** The example lists and updates a pet whose id JavaScript would round, and reports what the service refuses. */
export async function callsExactly(t: Test, { run }: Example): Promise<void> {
  const done = await run(PET, '41')
  t.strictSame([done.code, done.stderr], [0, ''])
  t.match(done.stdout, /9007199254740993\D+7\b.*pending[\s\S]*9007199254740993\D+41\b.*pending/)
  const refused = await run('6', '41')
  t.equal(refused.code, 1)
  t.match(refused.stderr, /not_found\W.*No inventory entry exists for petId 6\./)
}

/** The example knows an unchanged list, and sends again what is answered by a 503. */
export async function asksAgain(t: Test, { run, port }: Example): Promise<void> {
  const turnedAway = new Set<string>()
  const front = createServer((incoming, outgoing) => {
    const { method = '', headers, url: path } = incoming
    if (!turnedAway.has(method)) {
      turnedAway.add(method)
      outgoing.writeHead(503, { 'retry-after': '1', 'content-type': 'application/json' })
      outgoing.end('{"code":"service_unavailable","message":"Try again shortly.","status":503}')
      return
    }
    const onward = request({ host: '127.0.0.1', port, method, headers, path }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 500, answer.headers)
      answer.pipe(outgoing)
    })
    incoming.pipe(onward)
  })
  front.listen(0, '127.0.0.1')
  await once(front, 'listening')
  t.teardown(() => front.close())
  const address = front.address()
  const done = await run(PET, '42', typeof address === 'object' ? address?.port : undefined)
  t.strictSame([...turnedAway], ['GET', 'PATCH'])
  t.equal(done.code, 0, done.stderr)
  t.match(done.stdout, /9007199254740993\D+42\b.*pending/)
  t.match(done.stdout, /\nchanged\nunchanged\n$/)
}
