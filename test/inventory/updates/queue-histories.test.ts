import { setImmediate, setTimeout } from 'node:timers/promises'
import fc from 'fast-check'
import { Registry } from 'prom-client'
import t from 'tap'
import { isMet } from '../../../src/inventory/entry/condition.ts'
import type { InventoryItem } from '../../../src/inventory/entry/schemas.ts'
import type { QuantityUpdate } from '../../../src/inventory/updates/quantity-update.ts'
import { UpdateQueue, type UpdateTimes } from '../../../src/inventory/updates/queue.ts'
import type { StatementResult, UpdateRepository } from '../../../src/inventory/updates/repository.ts'
import type { TableState } from '../../../src/inventory/updates/table-state.ts'
import { requestMetrics } from '../../../src/metrics/request-metrics.ts'
import { until } from '../../support/eventually.ts'

const HISTORIES = 400
const UPDATES = 60
/** Pets 1 to 4 have an entry, pet 5 has none. */
const PETS = 5
const WITHOUT_ENTRY = 5n

/** Keys whose updates are sent apart from those of others once one is in trouble. */
const KEYS = ['a', 'b']

/** Event-loop iterations after which every update must have its outcome, long after the last one was added. */
const MAX_ITERATIONS = 20_000

/** What PostgreSQL does with a statement. */
const failures = ['skip a row', 'lock a row', 'time out', 'reject', 'lose'] as const
const outcomes = ['store', 'store', 'store', ...failures] as const

/** Returns the numbers one after the other, and starts again after the last. */
function endless(numbers: readonly number[]): () => number {
  let next = 0
  return () => numbers[next++ % numbers.length] ?? 0
}

/** A table whose statements take a random number of iterations and end in a random way. */
class RandomRepository implements UpdateRepository {
  readonly updateConnections = 9
  readonly entries = new Map<bigint, InventoryItem>()
  readonly errors: string[] = []
  readonly #isDistributed: boolean
  readonly #random: () => number
  readonly #inFlight = new Set<bigint>()
  /** The quantity that each key has stored for each pet. They count up, so a smaller one that is stored later is out of order. */
  readonly #stored = new Map<string, number>()

  constructor(random: () => number, isDistributed: boolean) {
    this.#random = random
    this.#isDistributed = isDistributed
    for (let petId = 1n; petId <= PETS; petId++)
      if (petId !== WITHOUT_ENTRY) this.entries.set(petId, { petId, quantity: 0, status: 'sold' })
  }

  table(): TableState {
    return { isDistributed: this.#isDistributed, namesCallers: false }
  }

  async setQuantities(updates: readonly QuantityUpdate[], skipsLocked: boolean): Promise<StatementResult> {
    if (this.#isDistributed && updates.length > 1) this.errors.push('Citus got several updates at once')
    for (const { petId } of updates) {
      if (this.#inFlight.has(petId)) this.errors.push(`Pet ${petId} is in two statements`)
      this.#inFlight.add(petId)
    }
    try {
      await this.#delay()
      return this.#decide(updates, skipsLocked && !this.#isDistributed)
    } finally {
      for (const { petId } of updates) this.#inFlight.delete(petId)
    }
  }

  async #delay(): Promise<void> {
    for (let left = this.#random() % 6; left > 0; left--) await setImmediate()
  }

  #decide(updates: readonly QuantityUpdate[], skipsLocked: boolean): StatementResult {
    const outcome = outcomes[this.#random() % outcomes.length]
    if (outcome === 'time out' || (outcome === 'lock a row' && !skipsLocked)) return { kind: 'locked' }
    if (outcome === 'reject') return rejected
    if (outcome === 'lose') return { kind: 'unknown', error: new Error('The connection is lost') }
    const entries = new Map<bigint, InventoryItem>()
    for (const [index, { petId, quantity, condition, caller }] of updates.entries()) {
      const entry = this.entries.get(petId)
      if (entry === undefined || (index === 0 && outcome === 'lock a row')) continue
      if (!isMet(condition, entry) || (index === 0 && outcome === 'skip a row')) continue
      const name = `pet ${petId} and key ${caller?.key?.name}`
      if (quantity < (this.#stored.get(name) ?? 0)) this.errors.push(`${quantity} of ${name} came late`)
      this.#stored.set(name, quantity)
      for (const table of [this.entries, entries]) table.set(petId, { ...entry, quantity })
    }
    // Without a response, it is not known which pets have an entry.
    const others = this.#random() % 8 === 0 ? undefined : new Map(this.entries)
    return { kind: 'made', entries, others: Promise.resolve(others) }
  }
}

/** A queue whose updates are neither late nor slow, unless `times` says so. */
function createQueue(repository: UpdateRepository, times: Partial<UpdateTimes> = {}) {
  const metrics = requestMetrics(new Registry())
  const all = { wait: 60_000, slow: 60_000, check: 1, retry: 1, ...times }
  const queue = new UpdateQueue(repository, metrics, undefined, all)
  const set = (name: string, update: QuantityUpdate) =>
    queue.set({ ...update, caller: { key: { name }, requestId: '' } })
  return { metrics, set }
}

const rejected: StatementResult = { kind: 'rejected', error: new Error('A constraint rejects it') }

/** How long updates may wait: for ever, or so shortly that many are late. */
const waits = { 'without limits': 60_000, 'with short limits': 3 }

for (const [limits, wait] of Object.entries(waits)) {
  for (const isDistributed of [false, true]) {
    const mode = isDistributed ? ' in the mode for Citus' : ''
    t.test(`random histories ${limits}${mode}: one outcome for each update, in order`, async (t) => {
      const history = async (numbers: readonly number[]): Promise<void> => {
        const random = endless(numbers)
        const repository = new RandomRepository(random, isDistributed)
        const { metrics, set } = createQueue(repository, { wait })
        let settled = 0
        for (let quantity = 1; quantity <= UPDATES; quantity++) {
          const petId = BigInt(1 + (random() % PETS))
          const name = KEYS[random() % KEYS.length] ?? ''
          const tag = `${repository.entries.get(petId)?.quantity}-sold`
          const condition = random() % 3 === 0 ? { anyOf: [tag] } : undefined
          set(name, { petId, quantity, condition }).then(
            (item) => {
              settled++
              if (item !== undefined && item.quantity !== quantity)
                repository.errors.push(`${quantity} was answered with ${item.quantity}`)
            },
            () => settled++,
          )
          for (let left = random() % 4; left > 0; left--) await setImmediate()
        }
        for (let left = MAX_ITERATIONS; settled < UPDATES && left > 0; left--) await setImmediate()
        if (settled < UPDATES) repository.errors.push(`${UPDATES - settled} updates have no outcome`)
        const [waiting] = (await metrics.waitingUpdates.get()).values
        if (waiting?.value !== 0) repository.errors.push('Updates are still counted as waiting')
        if (repository.errors.length > 0) throw new Error(repository.errors.join('; '))
      }
      const numbers = fc.array(fc.nat({ max: 10_000 }), { minLength: 300, maxLength: 300 })
      await fc.assert(fc.asyncProperty(numbers, history), { numRuns: HISTORIES / 4, endOnFailure: true })
      t.pass('all histories hold')
    })
  }
}

t.test('what is apart is sent at once, but only one statement of the other pets of a key', async (t) => {
  for (const [keys, expected] of [
    ['abcdef', 4],
    ['aaaaaa', 3],
  ] as const) {
    const repository = new RandomRepository(() => 0, false)
    const pending: (() => void)[] = []
    repository.setQuantities = async ([first, ...others]) => {
      // The first statement has all updates, of which PostgreSQL rejects one.
      if (others.length === keys.length - 1) return rejected
      await new Promise<void>((resolve) => pending.push(resolve))
      const senders = new Set([first, ...others].map((update) => update?.caller?.key?.name))
      t.equal(senders.size, 1)
      return rejected
    }
    const queue = createQueue(repository)
    const set = (name: string, petId: number) => queue.set(name, { petId: BigInt(petId), quantity: 1 })
    const updates = Array.from(keys, set)
    const outcomes = Promise.allSettled(updates)
    for (let left = 100; left > 0; left--) await setImmediate()
    t.equal(pending.length, expected, keys)
    const later = Promise.allSettled([10, 11, 12, 13].map((petId) => set('a', petId)))
    for (let left = 100; left > 0; left--) await setImmediate()
    t.equal(pending.length, keys === 'aaaaaa' ? expected + 1 : expected, `${keys} and more of the first`)
    const settled = Promise.all([outcomes, later]).then(() => true)
    while (!(await Promise.race([settled, setImmediate(false)])))
      for (const answer of pending.splice(0)) answer()
  }
})

t.test('a slow statement gives its place to the next batch, and its keys are apart', async (t) => {
  const repository = new RandomRepository(() => 0, false)
  const slow: (() => void)[] = []
  const senders: string[] = []
  repository.setQuantities = async (updates) => {
    const names = updates.map(({ caller }) => caller?.key?.name).join()
    senders.push(names)
    if (names.includes('slow')) await new Promise<void>((resolve) => slow.push(resolve))
    const entries = updates.map(
      ({ petId, quantity }) => [petId, { petId, quantity, status: 'sold' }] as const,
    )
    return { kind: 'made', entries: new Map(entries), others: undefined }
  }
  const queue = createQueue(repository, { slow: 1 })
  let pets = 0n
  const set = (name: string) => queue.set(name, { petId: pets++, quantity: 1 })

  const updates: Promise<unknown>[] = []
  for (const keys of [
    ['slow', 'good'],
    ['slower', 'better'],
  ]) {
    updates.push(...keys.map(set))
    // Longer than the limit, so that the timer of the queue has run.
    await setTimeout(20)
  }
  t.strictSame(senders.splice(0), ['slow,good', 'slower,better'], 'both places were taken')
  for (let count = 0; count < 10; count++) await set('good')
  senders.length = 0
  updates.push(set('slow'), set('slower'))
  await set('good')
  t.strictSame(senders.splice(0).sort(), ['good', 'slow', 'slower'], 'they no longer share statements')

  for (let key = 0; key < 20; key++) {
    updates.push(set(`slow ${key}`))
    await setTimeout(2)
  }
  await until('all places to be taken', () => slow.length >= 6)
  await setTimeout(20)
  t.equal(slow.length, 6, 'two are shared, and four apart')
  const settled = Promise.all(updates).then(() => true)
  while (!(await Promise.race([settled, setImmediate(false)]))) for (const answer of slow.splice(0)) answer()
})

t.test('an update that was made does not wait for why others of its batch were not', async (t) => {
  const repository = new RandomRepository(() => 0, false)
  const reads: (() => void)[] = []
  repository.setQuantities = async () => {
    const entry = { petId: 1n, quantity: 1, status: 'sold' } as const
    const others = new Promise<void>((resolve) => reads.push(resolve)).then(() => new Map())
    return { kind: 'made', entries: new Map([[1n, entry]]), others }
  }
  const { set } = createQueue(repository)
  const [made, unmade] = [1n, WITHOUT_ENTRY].map((petId) => set('', { petId, quantity: 1 }))
  t.match(await made, { quantity: 1 })
  for (const answer of reads) answer()
  t.equal(await unmade, undefined)
})

t.test('an update behind a slow one is late, and not locked by another transaction', async (t) => {
  const repository = new RandomRepository(() => 0, false)
  const inFlight: (() => void)[] = []
  repository.setQuantities = async () => {
    await new Promise<void>((resolve) => inFlight.push(resolve))
    const entry = { petId: 1n, quantity: 1, status: 'sold' } as const
    return { kind: 'made', entries: new Map([[1n, entry]]), others: undefined }
  }
  const { set } = createQueue(repository, { wait: 100, slow: 1 })
  const updates = Promise.allSettled([1, 2, 3].map((quantity) => set('', { petId: 1n, quantity })))
  await setTimeout(20)
  inFlight.shift()?.()
  // The second one is in flight again, and the third one is late.
  await setTimeout(200)
  for (const answer of inFlight) answer()
  const reasons = (await updates).flatMap((update) => (update.status === 'rejected' ? [update.reason] : []))
  t.ok(reasons.length > 0 && reasons.every(({ cause }) => cause === 'late'))
})
