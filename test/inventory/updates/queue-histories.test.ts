import { setImmediate, setTimeout } from 'node:timers/promises'
import fc from 'fast-check'
import pg from 'pg'
import t from 'tap'
import { StatementError } from '../../../src/database/statement-error.ts'
import { isMet } from '../../../src/inventory/entry/condition.ts'
import type { InventoryItem } from '../../../src/inventory/entry/schemas.ts'
import { InventoryStatistics } from '../../../src/inventory/statistics.ts'
import type { QuantityUpdate } from '../../../src/inventory/updates/quantity-update.ts'
import { UpdateQueue } from '../../../src/inventory/updates/queue.ts'
import type { UpdateRepository } from '../../../src/inventory/updates/repository.ts'
import type { TableState } from '../../../src/inventory/updates/table-state.ts'
import type { UpdatedRow } from '../../../src/inventory/updates/update-statements.ts'
import { eventually } from '../../support/eventually.ts'

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
    return { isDistributed: this.#isDistributed, namesCallers: false, skippingRules: '' }
  }

  async setQuantities(updates: readonly QuantityUpdate[], skipsLocked: boolean) {
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

  async entriesOf(petIds: readonly bigint[]): Promise<Map<bigint, InventoryItem>> {
    await this.#delay()
    if (this.#random() % 8 === 0) throw new StatementError(new Error('There is no response'), 'unknown')
    return new Map([...this.entries].filter(([petId]) => petIds.includes(petId)))
  }

  async #delay(): Promise<void> {
    for (let left = this.#random() % 6; left > 0; left--) await setImmediate()
  }

  #decide(updates: readonly QuantityUpdate[], skipsLocked: boolean): Map<bigint, UpdatedRow> {
    const outcome = outcomes[this.#random() % outcomes.length]
    if (outcome === 'time out' || (outcome === 'lock a row' && !skipsLocked)) throw errorOf('55P03')
    if (outcome === 'reject') throw errorOf('23514')
    if (outcome === 'lose') throw new StatementError(new Error('The connection is lost'), 'unknown')
    const rows = new Map<bigint, UpdatedRow>()
    for (const [index, { petId, quantity, condition, caller }] of updates.entries()) {
      const entry = this.entries.get(petId)
      if (entry === undefined || (index === 0 && outcome === 'lock a row')) continue
      const isUpdated = isMet(condition, entry) && (index > 0 || outcome !== 'skip a row')
      if (isUpdated) {
        const name = `pet ${petId} and key ${caller?.key?.name}`
        if (quantity < (this.#stored.get(name) ?? 0)) this.errors.push(`${quantity} of ${name} came late`)
        this.#stored.set(name, quantity)
        this.entries.set(petId, { ...entry, quantity })
      }
      if (isUpdated) rows.set(petId, { ...entry, quantity, key: petId })
    }
    return rows
  }
}

function errorOf(code: string): Error {
  const error = new pg.DatabaseError('an error', 0, 'error')
  error.code = code
  error.routine = 'ProcessInterrupts'
  return new StatementError(error, 'rolledBack')
}

/** How long updates may wait: for ever, or so shortly that many are late. */
const waits = { 'without limits': 60_000, 'with short limits': 3 }

for (const [limits, wait] of Object.entries(waits)) {
  for (const isDistributed of [false, true]) {
    const mode = isDistributed ? ' in the mode for Citus' : ''
    t.test(`random histories ${limits}${mode}: one outcome for each update, in order`, async (t) => {
      const history = async (numbers: readonly number[]): Promise<void> => {
        const random = endless(numbers)
        const repository = new RandomRepository(random, isDistributed)
        const statistics = new InventoryStatistics()
        const queue = new UpdateQueue(repository, statistics, undefined, { wait, check: 1, retry: 1 })
        let settled = 0
        for (let quantity = 1; quantity <= UPDATES; quantity++) {
          const petId = BigInt(1 + (random() % PETS))
          const caller = { key: { name: KEYS[random() % KEYS.length] ?? '' }, requestId: '' }
          const tag = `${repository.entries.get(petId)?.quantity}-sold`
          const condition = random() % 3 === 0 ? { anyOf: [tag] } : undefined
          queue.set({ petId, quantity, condition, caller }).then(
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
        if (statistics.waitingUpdates !== 0) repository.errors.push('Updates are still counted as waiting')
        if (repository.errors.length > 0) throw new Error(repository.errors.join('; '))
      }
      const numbers = fc.array(fc.nat({ max: 10_000 }), { minLength: 300, maxLength: 300 })
      await fc.assert(fc.asyncProperty(numbers, history), { numRuns: HISTORIES / 4, endOnFailure: true })
      t.pass('all histories hold')
    })
  }
}

t.test(
  'what is apart is sent at the same time, but only one statement of the other pets of a key',
  async (t) => {
    for (const [keys, expected] of [
      ['abcdef', 4],
      ['aaaaaa', 3],
    ] as const) {
      const repository = new RandomRepository(() => 0, false)
      const pending: (() => void)[] = []
      repository.setQuantities = async ([first, ...others]) => {
        // The first statement has all updates, of which PostgreSQL rejects one.
        if (others.length === keys.length - 1) throw errorOf('23514')
        await new Promise<void>((resolve) => pending.push(resolve))
        const senders = new Set([first, ...others].map((update) => update?.caller?.key?.name))
        t.equal(senders.size, 1)
        throw errorOf('23514')
      }
      const timeouts = { wait: 60_000, check: 1, retry: 1 }
      const queue = new UpdateQueue(repository, new InventoryStatistics(), undefined, timeouts)
      const set = (name: string, petId: number) =>
        queue.set({ petId: BigInt(petId), quantity: 1, caller: { key: { name }, requestId: '' } })
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
  },
)

t.test('the key of a slow statement is set apart, once others were faster', async (t) => {
  const repository = new RandomRepository(() => 0, false)
  const store = repository.setQuantities.bind(repository)
  let isMixed = true
  repository.setQuantities = async (updates, skipsLocked) => {
    const keys = new Set(updates.map(({ caller }) => caller?.key?.name))
    if (keys.has('slow')) {
      isMixed = keys.size > 1
      await setTimeout(700)
    }
    return store(updates, skipsLocked)
  }
  const queue = new UpdateQueue(repository, new InventoryStatistics())
  const set = (name: string, petId: bigint) =>
    queue.set({ petId, quantity: 1, caller: { key: { name }, requestId: '' } })
  await eventually('a slow statement without updates of another key', async () => {
    const slow = Promise.all([set('slow', 1n), set('good', 2n)])
    // In the next statement.
    await setImmediate()
    for (let count = 0; count < 20; count++) await set('good', 3n)
    await slow
    return !isMixed
  })
  t.pass('they no longer share statements, though they always arrive together')
})
