import { setImmediate } from 'node:timers'
import { wasRefused } from '../database/failures.ts'
import { serviceUnavailable } from '../errors.ts'
import type { InventoryRepository, QuantityUpdate } from './repository.ts'
import type { InventoryItem, PetStatus } from './schemas.ts'
import type { InventoryStatistics } from './statistics.ts'

/** An update whose caller waits for its outcome. */
interface Waiting extends QuantityUpdate {
  readonly since: number
  readonly resolve: (item: InventoryItem | undefined) => void
  readonly reject: (error: unknown) => void
}

/** All that wait for one pet, in the order in which they came. */
type Turn = [Waiting, ...Waiting[]]

/** Statements under way at once: one that waits for a locked row leaves the way free for the others. */
const LANES = 3

/** The most updates that wait; beyond it, callers are turned away at once. */
const CAPACITY = 10_000

/** The most pets in one statement. */
const BATCH = 500

/** How long an update may wait for its statement, in milliseconds. */
const LONGEST_WAIT = 2000

/**
 * Sets quantities. Updates that arrive while others are on their way go out together, as one statement and one commit;
 * a lone one goes out at once, as a statement of its own. No pet is ever in two statements at a time, so that those who
 * wait for a locked row wait by themselves. Of several updates of one pet, the last to arrive is what stays.
 *
 * A batch that PostgreSQL has refused has changed nothing, and each of its updates is tried alone, so that a fault is
 * the affair of its own caller. A batch without an answer is not tried again: it may have been committed.
 */
export class UpdateQueue {
  readonly #repository: InventoryRepository
  readonly #waiting = new Map<bigint, Turn>()
  readonly #alone: Turn[] = []
  readonly #underWay = new Set<bigint>()
  readonly #statistics: InventoryStatistics
  #lanes = LANES
  #size = 0
  #scheduled = false

  constructor(repository: InventoryRepository, statistics: InventoryStatistics) {
    this.#repository = repository
    this.#statistics = statistics
  }

  /**
   * Returns the entry as it is once the quantity is committed, or undefined where the pet has none.
   *
   * @throws {ApiError} 503 when too many updates wait, or this one has waited for too long
   * @throws {DatabaseUnavailableError} when no answer can be had
   */
  set(petId: bigint, quantity: number): Promise<InventoryItem | undefined> {
    if (this.#size >= CAPACITY)
      return Promise.reject(serviceUnavailable('Too many updates are waiting. Try again shortly.'))
    return new Promise((resolve, reject) => {
      const update: Waiting = { petId, quantity, since: performance.now(), resolve, reject }
      const turn = this.#waiting.get(petId)
      if (turn) turn.push(update)
      else this.#waiting.set(petId, [update])
      this.#resize(1)
      this.#schedule()
    })
  }

  #resize(change: number): void {
    this.#size += change
    this.#statistics.waitingUpdates = this.#size
  }

  /** Sends what waits once the requests that have arrived by now were all read. */
  #schedule(): void {
    if (this.#scheduled) return
    this.#scheduled = true
    setImmediate(() => {
      this.#scheduled = false
      this.#send()
    })
  }

  #send(): void {
    while (this.#lanes > 0) {
      const retried = this.#alone.shift()
      const batch = retried ? [retried] : this.#nextBatch()
      if (batch.length === 0) return
      this.#lanes--
      void this.#run(batch).finally(() => {
        this.#lanes++
        this.#send()
      })
    }
  }

  /** Takes the longest waiting pets that no statement is under way for. */
  #nextBatch(): Turn[] {
    const batch: Turn[] = []
    const tooLate = performance.now() - LONGEST_WAIT
    for (const [petId, turn] of this.#waiting) {
      if (batch.length === BATCH) break
      if (this.#underWay.has(petId)) continue
      this.#waiting.delete(petId)
      this.#resize(-turn.length)
      const [first, ...others] = turn.filter((update) => {
        if (update.since >= tooLate) return true
        update.reject(serviceUnavailable('The database is too busy. Try again shortly.'))
        return false
      })
      if (first === undefined) continue
      this.#underWay.add(petId)
      batch.push([first, ...others])
    }
    return batch
  }

  async #run(batch: readonly Turn[]): Promise<void> {
    try {
      const statuses = await this.#write(batch)
      for (const turn of batch) settle(turn, statuses)
    } catch (error) {
      if (batch.length > 1 && wasRefused(error)) {
        this.#alone.push(...batch)
        return
      }
      for (const turn of batch) for (const update of turn) update.reject(error)
    }
    for (const [{ petId }] of batch) this.#underWay.delete(petId)
  }

  /** Writes the last quantity of each turn. */
  async #write(batch: readonly Turn[]): Promise<Map<bigint, PetStatus>> {
    this.#statistics.batches.observe(batch.reduce((updates, turn) => updates + turn.length, 0))
    const updates = batch.map(lastOf)
    const [only] = updates
    if (updates.length === 1 && only !== undefined) {
      const status = await this.#repository.setQuantity(only)
      return new Map(status === undefined ? [] : [[only.petId, status]])
    }
    // In one order everywhere, two processes that update the same pets wait for each other instead of deadlocking.
    return this.#repository.setQuantities(updates.sort((a, b) => (a.petId < b.petId ? -1 : 1)))
  }
}

function lastOf(turn: Turn): QuantityUpdate {
  return turn.at(-1) ?? turn[0]
}

/** Tells each caller its own quantity: those before the last were committed and replaced in the same moment. */
function settle(turn: Turn, statuses: ReadonlyMap<bigint, PetStatus>): void {
  for (const { petId, quantity, resolve } of turn) {
    const status = statuses.get(petId)
    resolve(status === undefined ? undefined : { petId, quantity, status })
  }
}
