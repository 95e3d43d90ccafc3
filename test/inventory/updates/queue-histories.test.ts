import { setImmediate } from 'node:timers/promises'
import fc from 'fast-check'
import pg from 'pg'
import t from 'tap'
import { DatabaseUnavailableError } from '../../../src/database/errors.ts'
import type { InventoryItem } from '../../../src/inventory/entry/schemas.ts'
import { InventoryStatistics } from '../../../src/inventory/statistics.ts'
import type { QuantityUpdate } from '../../../src/inventory/updates/quantity-update.ts'
import { UpdateQueue } from '../../../src/inventory/updates/queue.ts'
import type { UpdateRepository } from '../../../src/inventory/updates/repository.ts'

const HISTORIES = 300
const UPDATES = 60
/** Pets 1 to 4 have an entry, pet 5 has none. */
const PETS = 5
const WITHOUT_ENTRY = 5n

/** Keys whose updates are sent apart from those of others once PostgreSQL has refused one. */
const KEYS = ['a', 'b']

/** Event-loop iterations after which every update must have its outcome, long after the last one was added. */
const MAX_ITERATIONS = 20_000

/** What PostgreSQL does with a statement. */
const outcomes = [
  'store',
  'store',
  'store',
  'skip a row',
  'row lock',
  'table lock',
  'refuse',
  'lose',
] as const

/** Returns the numbers one after the other, and starts again after the last. */
function endless(numbers: readonly number[]): () => number {
  let next = 0
  return () => numbers[next++ % numbers.length] ?? 0
}

/** A table whose statements take a random number of iterations and end in a random way. */
class RandomRepository implements UpdateRepository {
  readonly updateConnections = 4
  /** The quantity that each key has stored for each pet. They count up, so a smaller one that is stored later is out of order. */
  readonly stored = new Map<string, number>()
  readonly errors: string[] = []
  readonly #random: () => number
  readonly #inFlight = new Set<bigint>()

  constructor(random: () => number) {
    this.#random = random
  }

  maxBatchSize(): number {
    return 500
  }

  async setQuantities(updates: readonly QuantityUpdate[]): Promise<Map<bigint, InventoryItem>> {
    for (const { petId } of updates) {
      if (this.#inFlight.has(petId)) this.errors.push(`Pet ${petId} is in two statements`)
      this.#inFlight.add(petId)
    }
    try {
      await this.#delay()
      return this.#decide(updates)
    } finally {
      for (const { petId } of updates) this.#inFlight.delete(petId)
    }
  }

  async lockedAmong(petIds: readonly bigint[]): Promise<Set<bigint>> {
    await this.#delay()
    return new Set(petIds.filter(() => this.#random() % 2 === 0))
  }

  async tagsOf(petIds: readonly bigint[]): Promise<Map<bigint, string>> {
    await this.#delay()
    return new Map(petIds.filter((petId) => petId !== WITHOUT_ENTRY).map((petId) => [petId, '0-sold']))
  }

  async #delay(): Promise<void> {
    for (let left = this.#random() % 6; left > 0; left--) await setImmediate()
  }

  #decide(updates: readonly QuantityUpdate[]): Map<bigint, InventoryItem> {
    const outcome = outcomes[this.#random() % outcomes.length]
    if (outcome === 'row lock' || outcome === 'table lock')
      throw new DatabaseUnavailableError(refusal('55P03'), 'refused')
    if (outcome === 'refuse') throw refusal('23514')
    if (outcome === 'lose') throw new DatabaseUnavailableError(new Error('The connection is lost'), 'unknown')
    const skipped = outcome === 'skip a row' ? updates[0]?.petId : undefined
    const entries = new Map<bigint, InventoryItem>()
    for (const { petId, quantity, caller } of updates) {
      if (petId === WITHOUT_ENTRY || petId === skipped) continue
      const name = `pet ${petId} and key ${caller?.key?.name}`
      if (quantity < (this.stored.get(name) ?? 0)) this.errors.push(`${quantity} of ${name} came late`)
      this.stored.set(name, quantity)
      entries.set(petId, { petId, quantity, status: 'sold' })
    }
    return entries
  }
}

function refusal(code: string): Error {
  const error = new pg.DatabaseError('refused', 0, 'error')
  error.code = code
  return error
}

t.test(
  'in random histories, each update gets one outcome, and those of a pet and a key stay in order',
  async (t) => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.nat({ max: 10_000 }), { minLength: 300, maxLength: 300 }),
        async (numbers) => {
          const random = endless(numbers)
          const repository = new RandomRepository(random)
          const statistics = new InventoryStatistics()
          const times = { wait: 60_000, check: 1 }
          const queue = new UpdateQueue(repository, statistics, undefined, times)
          let settled = 0
          for (let quantity = 1; quantity <= UPDATES; quantity++) {
            const petId = BigInt(1 + (random() % PETS))
            const caller = { key: { name: KEYS[random() % KEYS.length] ?? '' }, requestId: '' }
            queue.set({ petId, quantity, caller }).then(
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
        },
      ),
      { numRuns: HISTORIES, endOnFailure: true },
    )
    t.pass('all histories hold')
  },
)
