import { createRequire } from 'node:module'
import t, { type Test } from 'tap'
import { type Fault, inTurn, startFront } from '../examples/front.ts'
import { apiKey, startService } from '../support/app.ts'
import { eventually } from '../support/eventually.ts'
import { run as startCommand } from '../support/program.ts'

/** No JavaScript number is this one. */
const PET = '9007199254740993'

/** Its quantity. */
const FIRST = 41

/** So long that no attempt times out while a busy machine starts the program; and where a server stalls, as a test waits for it. */
const [TIMEOUT_SECONDS, SHORT_TIMEOUT_SECONDS] = [60, 5]

/** What a program prints of its own inside when it fails unexpectedly. */
const TRACE = /^\s+at |Unhandled|node:internal|^\s*throw /m

/** An example of a caller, and the service for it to call. */
type Example = Awaited<ReturnType<typeof startExample>>

/** Starts the service with two entries, to be called by an example that is started by a command. */
async function startExample(t: Test, [command, ...args]: readonly [string, ...string[]]) {
  const service = await startService(t, ['1,12,available', `${PET},${FIRST},pending`])
  return {
    service,
    /** Has it set the quantity of a pet. */
    async run(petId: string, quantity: string, port = service.port, timeoutSeconds = TIMEOUT_SECONDS) {
      const env = {
        ...process.env,
        INVENTORY_URL: `http://127.0.0.1:${port}/v1`,
        INVENTORY_KEY: apiKey,
        INVENTORY_TIMEOUT_SECONDS: String(timeoutSeconds),
      }
      const outcome = await startCommand(t, command, [...args, petId, quantity], { env }).ended
      t.notMatch(outcome.stderr, TRACE)
      return outcome
    },
  }
}

/**
 * The example lists and updates a pet whose id JavaScript would round, and sends again what a server stalled on, cut off, reset, put off
 * or answered with a proxy's page. Of its five tries, each run uses up at most two, so that it may also try again what a busy machine
 * makes fail.
 */
async function retries(t: Test, { run, service }: Example): Promise<void> {
  const scripts: readonly Readonly<Record<'GET' | 'PATCH', readonly Fault[]>>[] = [
    { GET: ['stall in the body', 'reset'], PATCH: ['date', 'stall'] },
    { GET: ['502 page', 'date'], PATCH: ['1 second', 'reset'] },
    { GET: ['cut in the body'], PATCH: ['cut in the body'] },
  ]
  for (const [index, script] of scripts.entries()) {
    const { port, requests } = await startFront(t, service.port, inTurn(script))
    const done = await run(PET, String(FIRST + index + 1), port, SHORT_TIMEOUT_SECONDS)
    t.equal(done.code, 0, done.stderr)
    const [before, after] = [0, 1].map((more) => `${PET}\\D+${FIRST + index + more}\\b.*pending[^]*`)
    t.match(done.stdout, new RegExp(`${before}${after}\nchanged\nunchanged\n$`))
    for (const [method, faults] of Object.entries(script)) {
      const sent = requests.filter((request) => request.method === method)
      t.ok(sent.length > faults.length, `${method} was sent again after ${faults.join(' and ')}`)
    }
  }
}

/** The example ends with one sentence and 1 where trying again makes no sense. */
async function givesUp(t: Test, { run, service }: Example): Promise<void> {
  for (const [fault, stderr, attempts] of [
    ['reset', /\S/, 5],
    ['502 page', /\b502\b.*text\/html/, 5],
    ['200 page', /\b200\b.*text\/html/, 1],
    ['403 page', /\b403\b.*text\/html/, 1],
    ['1 hour', /service_unavailable/, 1],
  ] as const) {
    const { port, requests } = await startFront(t, service.port, () => fault)
    t.match(await run(PET, '43', port), { code: 1, stderr }, fault)
    // Some HTTP clients repeat a GET themselves, too, when the connection is lost.
    const isRepeated = fault === 'reset' && requests.length > attempts
    t.ok(requests.length === attempts || isRepeated, `${fault}: ${requests.length} requests`)
  }
  t.match(await run('6', '43'), { code: 1, stderr: /not_found\W.*No inventory entry exists for petId 6\./ })
  t.match(await run('a cat', '43'), { code: 2, stderr: /./ })
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
}

const [UNCHANGED, UNKNOWN] = ['Nothing was changed.', 'The update may have been applied.']

/** The example tells an update that was never sent from one whose response was lost, and sends a condition once. */
async function disconnects(t: Test, { run, service }: Example): Promise<void> {
  // To add, an example lists once more.
  for (const [quantity, fault, expected, outcome] of [
    ['43', 'stop', 'GET', UNCHANGED],
    ['43', 'stop', 'GET PATCH', UNKNOWN],
    ['+3', 'stop', 'GET GET', UNCHANGED],
    ['+3', 'reset', 'GET GET PATCH', UNKNOWN],
    ['+3', 'cut in the body', 'GET GET PATCH', UNKNOWN],
    ['+3', '1 second', 'GET GET PATCH', UNKNOWN],
  ] as const) {
    const front = await startFront(t, service.port, ({ method }) => {
      if (fault === 'stop' && front.requests.length === expected.split(' ').length) front.stopListening()
      if (method === 'PATCH') return fault === 'stop' ? 'reset' : fault
      return undefined
    })
    const { code, stderr } = await run(PET, quantity, front.port)
    t.equal(code, 1, stderr)
    t.equal(front.requests.map(({ method }) => method).join(' '), expected)
    t.strictSame(stderr.match(/Nothing was changed\.|The update may have been applied\./g), [outcome], stderr)
  }
}

const examples = {
  curl: ['examples/curl/inventory.sh'],
  TypeScript: [
    process.execPath,
    createRequire(import.meta.url).resolve('tsx/cli'),
    'examples/typescript/inventory.ts',
  ],
} as const

const checks = {
  'loses no update of another': changes,
  'lists and updates exactly, and retries what may pass': retries,
  'reports what does not pass in one sentence': givesUp,
  'tells what was never sent from what was lost': disconnects,
}

// An example waits most of the time before it tries again.
t.jobs = Object.keys(checks).length
for (const [language, command] of Object.entries(examples)) {
  for (const [title, holds] of Object.entries(checks)) {
    t.test(`the example in ${language} ${title}`, { buffered: true }, async (t) =>
      holds(t, await startExample(t, command)),
    )
  }
}
