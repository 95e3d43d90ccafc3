import { createRequire } from 'node:module'
import t, { type Test } from 'tap'
import { type Fault, inTurn, startFront } from '../examples/front.ts'
import { apiKey, startService } from '../support/app.ts'
import { eventually } from '../support/eventually.ts'
import { type Outcome, run as startCommand } from '../support/program.ts'

const tsx = createRequire(import.meta.url).resolve('tsx/cli')

/** No JavaScript number is this one. */
const PET = '9007199254740993'

/** An example of a caller, and the service for it to call. */
type Example = Awaited<ReturnType<typeof startExample>>

/**
 * The timeout of an attempt. A test waits for the short one whenever a server stalls. Where none stalls, it is so long that
 * no attempt times out while a busy machine starts the program.
 */
const SHORT_TIMEOUT_SECONDS = 5
const LONG_TIMEOUT_SECONDS = 60

/** Starts the service with two entries, to be called by an example that is started by a command. */
async function startExample(t: Test, command: string, args: readonly string[], timeoutSeconds: number) {
  const service = await startService(t, ['1,12,available', `${PET},7,pending`])
  return {
    service,
    /** Has it set the quantity of a pet. */
    run: (petId: string, quantity: string, port = service.port): Promise<Outcome> => {
      const env = {
        ...process.env,
        INVENTORY_URL: `http://127.0.0.1:${port}/v1`,
        INVENTORY_KEY: apiKey,
        INVENTORY_TIMEOUT_SECONDS: String(timeoutSeconds),
      }
      return startCommand(t, command, [...args, petId, quantity], { env }).ended
    },
  }
}

/** The example lists and updates a pet whose id JavaScript would round, and reports what the service refuses. */
async function updates(t: Test, { run }: Example): Promise<void> {
  const done = await run(PET, '41')
  t.strictSame([done.code, done.stderr], [0, ''])
  t.match(done.stdout, /9007199254740993\D+7\b.*pending[\s\S]*9007199254740993\D+41\b.*pending/)
  t.match(done.stdout, /\nchanged\nunchanged\n$/)
  const refused = await run('6', '41')
  t.equal(refused.code, 1)
  t.match(refused.stderr, /not_found\W.*No inventory entry exists for petId 6\./)
}

/**
 * The example sends again what a server stalled on, cut off, reset, put off or answered with a proxy's page. Of its five tries,
 * each run uses up at most two, so that it may also try again what a busy machine makes fail.
 */
async function retries(t: Test, { run, service }: Example): Promise<void> {
  const scripts: readonly Readonly<Record<'GET' | 'PATCH', readonly Fault[]>>[] = [
    { GET: ['stall in the body', 'reset'], PATCH: ['date', 'stall'] },
    { GET: ['502 page', 'date'], PATCH: ['1 second', 'reset'] },
    { GET: ['cut in the body'], PATCH: ['cut in the body'] },
  ]
  for (const [index, script] of scripts.entries()) {
    const front = await startFront(t, service.port, inTurn(script))
    const quantity = String(42 + index)
    const done = await run(PET, quantity, front.port)
    t.equal(done.code, 0, done.stderr)
    t.match(done.stdout, new RegExp(`9007199254740993\\D+${quantity}\\b.*pending`))
    t.match(done.stdout, /\nchanged\nunchanged\n$/)
    for (const [method, faults] of Object.entries(script)) {
      const sent = front.requests.filter((request) => request.method === method)
      t.ok(sent.length > faults.length, `${method} was sent again after ${faults.join(' and ')}`)
      const dated = faults.indexOf('date')
      const [putOff, next] = sent.slice(dated)
      if (dated >= 0)
        t.ok((next?.at ?? 0) >= (putOff?.retryAfter() ?? Number.NaN), `${method} waited for the date`)
    }
  }
}

/** What a program prints of its own inside when it fails unexpectedly. */
const TRACE = /^\s+at |Unhandled|node:internal|^\s*throw /m

/** The example ends with one sentence and 1 where trying again makes no sense. */
async function givesUp(t: Test, { run, service }: Example): Promise<void> {
  const reports = async (title: string, port: number, expected: RegExp, petId = PET): Promise<void> => {
    const { code, stderr } = await run(petId, '43', port)
    t.notMatch(stderr, TRACE, title)
    t.match(stderr, expected, title)
    t.ok(code === 1 || code === 2, `${title}: exit code ${code}`)
  }
  const countRequests = async (fault: Fault, expected: RegExp): Promise<number> => {
    const front = await startFront(t, service.port, () => fault)
    await reports(fault, front.port, expected)
    return front.requests.length
  }
  const repeated = Promise.all([
    countRequests('502 page', /\b502\b.*text\/html/),
    countRequests('reset', /\S/),
  ])
  for (const [fault, expected] of [
    ['200 page', /\b200\b.*text\/html/],
    ['403 page', /\b403\b.*text\/html/],
    ['1 hour', /service_unavailable/],
  ] as const) {
    t.equal(await countRequests(fault, expected), 1, `${fault}: one request`)
  }
  const [pages, resets] = await repeated
  t.equal(pages, 5, 'the example tries five times')
  t.ok(resets >= 5, 'some HTTP clients repeat a GET themselves, too, when the connection is lost')
  await reports('a petId that is none', service.port, /./, 'a cat')
}

/** The example changes a quantity by what it is while another writer sets it, and does not guess at a lost answer. */
async function changes(t: Test, { run, service }: Example): Promise<void> {
  // On a busy machine, an update may get a 503.
  const set = (quantity: number): Promise<true> =>
    eventually(`the quantity ${quantity}`, async () => (await service.update(PET, quantity)).status === 200)
  await set(10)
  let isDisturbed = false
  const disturbed = await startFront(t, service.port, async ({ method }) => {
    if (method === 'PATCH' && !isDisturbed) await set(100)
    isDisturbed ||= method === 'PATCH'
    return undefined
  })
  // A leading zero does not make it octal.
  const added = await run(PET, '+08', disturbed.port)
  t.strictSame([added.code, added.stderr], [0, ''])
  t.match(added.stdout, /9007199254740993\D+108\b.*pending/)
  const sent = disturbed.requests.filter(({ method }) => method === 'PATCH')
  const tags = sent.map(({ headers }) => headers['if-match'])
  t.strictSame(tags, ['"10-pending"', '"100-pending"'])
  t.match(disturbed.requests.map(({ method }) => method).join(), 'PATCH,PATCH', 'the 412 has the new tag')

  const putOff = await startFront(t, service.port, inTurn({ PATCH: ['unchanged', 'unchanged'] }))
  const repeated = await run(PET, '-8', putOff.port)
  t.strictSame([repeated.code, repeated.stderr], [0, ''], 'what has changed nothing is sent again')
  t.match(repeated.stdout, /9007199254740993\D+100\b.*pending/)

  for (const [fault, expected] of [
    ['reset', /may have been applied/],
    ['cut in the body', /may have been applied/],
    ['1 second', /service_unavailable[\s\S]*may have been applied/],
  ] as const) {
    const lossy = await startFront(t, service.port, ({ method }) => (method === 'PATCH' ? fault : undefined))
    const lost = await run(PET, '-3', lossy.port)
    t.equal(lost.code, 1)
    t.notMatch(lost.stderr, TRACE)
    t.match(lost.stderr, expected)
    const sent = lossy.requests.filter(({ method }) => method === 'PATCH')
    t.equal(sent.length, 1, 'a condition is sent once')
  }
}

/** The example tells an update that was never sent from one whose response was lost. */
async function disconnects(t: Test, { run, service }: Example): Promise<void> {
  // To add, an example lists once more.
  for (const [quantity, methods, outcome] of [
    ['43', 'GET', 'Nothing was changed.'],
    ['43', 'GET PATCH', 'The update may have been applied.'],
    ['+3', 'GET GET', 'Nothing was changed.'],
    ['+3', 'GET GET PATCH', 'The update may have been applied.'],
  ] as const) {
    // It stops listening at the last request, and resets the connection of an update.
    const front = await startFront(t, service.port, ({ method }) => {
      if (front.requests.length === methods.split(' ').length) front.stopListening()
      return method === 'PATCH' ? 'reset' : undefined
    })
    const { code, stderr } = await run(PET, quantity, front.port)
    t.equal(code, 1, stderr)
    t.notMatch(stderr, TRACE)
    t.equal(front.requests.map(({ method }) => method).join(' '), methods)
    t.strictSame(stderr.match(/Nothing was changed\.|The update may have been applied\./g), [outcome], stderr)
  }
}

const examples = {
  curl: ['examples/curl/inventory.sh'],
  TypeScript: [process.execPath, tsx, 'examples/typescript/inventory.ts'],
} as const

const checks = [
  ['lists and updates exactly', updates, LONG_TIMEOUT_SECONDS],
  ['loses no update of another', changes, LONG_TIMEOUT_SECONDS],
  ['retries what may pass', retries, SHORT_TIMEOUT_SECONDS],
  ['reports what does not pass in one sentence', givesUp, LONG_TIMEOUT_SECONDS],
  ['tells what was never sent from what was lost', disconnects, LONG_TIMEOUT_SECONDS],
] as const

// An example waits most of the time before it tries again.
t.jobs = checks.length
for (const [language, [command, ...args]] of Object.entries(examples)) {
  for (const [title, holds, timeoutSeconds] of checks) {
    t.test(`the example in ${language} ${title}`, { buffered: true }, async (t) =>
      holds(t, await startExample(t, command, args, timeoutSeconds)),
    )
  }
}
