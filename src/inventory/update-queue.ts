import { setImmediate } from 'node:timers'
import type { Context } from '@opentelemetry/api'
import { isLocked, wasRefused } from '../database/failures.ts'
import { serviceUnavailable } from '../errors.ts'
import type { InventoryRepository, QuantityUpdate } from './repository.ts'
import type { InventoryItem, PetStatus } from './schemas.ts'
import type { InventoryStatistics } from './statistics.ts'

/** An update whose caller waits for its outcome. */
interface Waiting extends QuantityUpdate {
  readonly since: number
  /** The request, where requests are traced. */
  readonly context: Context | undefined
  readonly resolve: (item: InventoryItem | undefined) => void
  readonly reject: (error: unknown) => void
}

/** Tells a trace which requests a statement serves. */
export interface BatchTracer {
  /** The request that is being served now. */
  current(): Context
  /** Runs a statement that serves these requests. */
  run<Result>(requests: readonly Context[], work: () => Promise<Result>): Promise<Result>
}

/** All that wait for one pet, in the order in which they came. */
type Turn = [Waiting, ...Waiting[]]

/** Statements under way at once. */
const LANES = 3

/** Those of them in which single updates may wait for a row; the others are left to everybody else. */
const SINGLE_LANES = 2

/** Those of them that batches take: with one more, batches are smaller and each update costs both sides more. */
const BATCH_LANES = 2

/** The most pets in one statement. */
const BATCH = 500

/** How long an update may wait for its statement, or for its row, in milliseconds. */
const LONGEST_WAIT = 2000

/**
 * Sets quantities. Updates that arrive while others are on their way go out together, as one statement and one commit;
 * a lone one goes out at once, as a statement of its own. No pet is ever in two statements at a time. Of several updates
 * of one pet, the last to arrive is what stays.
 *
 * A batch that PostgreSQL has refused has changed nothing. Where someone's open transaction holds a row of it, the
 * others go out again without that one, and it is tried alone, again and again, until it is free or its callers have
 * waited for too long. After any other refusal each update is tried alone, so that a fault is the affair of its own
 * caller. A batch without an answer is not tried again: it may have been committed.
 */
export class UpdateQueue {
  readonly #repository: InventoryRepository
  readonly #statistics: InventoryStatistics
  readonly #tracer: BatchTracer | undefined
  readonly #waiting = new Map<bigint, Turn>()
  readonly #underWay = new Set<bigint>()
  /** Pets whose rows were held when they were last tried, and who waits for those. */
  readonly #held = new Set<bigint>()
  readonly #waitingForHeld = new Map<bigint, Turn>()
  /** What was in refused batches, to go out together and one by one. */
  readonly #together: Turn[][] = []
  readonly #alone: Turn[] = []
  /** Statements under way for an update alone, and for a batch. */
  #singles = 0
  #batches = 0
  #scheduled = false

  constructor(repository: InventoryRepository, statistics: InventoryStatistics, tracer?: BatchTracer) {
    this.#repository = repository
    this.#statistics = statistics
    this.#tracer = tracer
  }

  /**
   * Returns the entry as it is once the quantity is committed, or undefined where the pet has none.
   *
   * @throws {ApiError} 503 when it has waited for too long
   * @throws {DatabaseUnavailableError} when no answer can be had
   */
  set(petId: bigint, quantity: number): Promise<InventoryItem | undefined> {
    return new Promise((resolve, reject) => {
      const update: Waiting = {
        petId,
        quantity,
        since: performance.now(),
        context: this.#tracer?.current(),
        resolve,
        reject,
      }
      const waiting = this.#held.has(petId) ? this.#waitingForHeld : this.#waiting
      const turn = waiting.get(petId)
      if (turn) turn.push(update)
      else waiting.set(petId, [update])
      this.#statistics.waitingUpdates++
      this.#schedule()
    })
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
    while (this.#singles + this.#batches < LANES) {
      const single = this.#singles < SINGLE_LANES ? this.#nextSingle() : undefined
      if (single) {
        this.#singles++
        void this.#run([single]).finally(() => {
          this.#singles--
          this.#send()
        })
        continue
      }
      const batch = this.#batches < BATCH_LANES ? this.#nextBatch() : []
      if (batch.length === 0) return
      this.#batches++
      void this.#run(batch).finally(() => {
        this.#batches--
        this.#send()
      })
    }
  }

  #nextSingle(): Turn | undefined {
    const refused = this.#alone.shift()
    if (refused) return refused
    let next: Turn | undefined
    for (const [petId, turn] of this.#waitingForHeld) {
      // Those whose turn has not come are told in time, too.
      const left = this.#withoutLate(turn, 'Someone else is changing the entry. Try again shortly.')
      if (left === undefined) {
        this.#waitingForHeld.delete(petId)
      } else if (next === undefined && !this.#underWay.has(petId)) {
        next = left
        this.#waitingForHeld.delete(petId)
        this.#statistics.waitingUpdates -= left.length
        this.#underWay.add(petId)
      } else {
        this.#waitingForHeld.set(petId, left)
      }
    }
    return next
  }

  /** Takes the longest waiting pets that no statement is under way for. */
  #nextBatch(): Turn[] {
    const refused = this.#together.shift()
    if (refused) return refused
    const batch: Turn[] = []
    for (const [petId, turn] of this.#waiting) {
      if (batch.length === BATCH) break
      if (this.#underWay.has(petId)) continue
      this.#waiting.delete(petId)
      const left = this.#withoutLate(turn, 'The database is too busy. Try again shortly.')
      if (left === undefined) continue
      this.#statistics.waitingUpdates -= left.length
      this.#underWay.add(petId)
      batch.push(left)
    }
    return batch
  }

  /** The updates of a turn that have not waited for too long; the others are turned away. */
  #withoutLate(turn: Turn, reason: string): Turn | undefined {
    const tooLate = performance.now() - LONGEST_WAIT
    const [first, ...others] = turn.filter((update) => {
      if (update.since >= tooLate) return true
      this.#statistics.waitingUpdates--
      update.reject(serviceUnavailable(reason))
      return false
    })
    return first && [first, ...others]
  }

  async #run(batch: readonly Turn[]): Promise<void> {
    try {
      const write = (): Promise<Map<bigint, PetStatus>> => this.#write(batch)
      const statuses = await (this.#tracer?.run(contextsOf(batch), write) ?? write())
      for (const turn of batch) {
        this.#held.delete(turn[0].petId)
        settle(turn, statuses)
      }
    } catch (error) {
      if (isLocked(error)) {
        await this.#setHeldAside(batch)
        return
      }
      if (batch.length > 1 && wasRefused(error)) {
        this.#alone.push(...batch)
        return
      }
      for (const turn of batch) for (const update of turn) update.reject(error)
    }
    for (const [{ petId }] of batch) this.#underWay.delete(petId)
  }

  /** Has those whose rows are held wait for them, and the others go out again. */
  async #setHeldAside(batch: readonly Turn[]): Promise<void> {
    const petIds = batch.map(([{ petId }]) => petId)
    // A lone one is held for certain; and where PostgreSQL cannot tell, each waits for itself.
    const held =
      batch.length === 1
        ? new Set(petIds)
        : await this.#repository.heldAmong(petIds).catch(() => new Set(petIds))
    const others: Turn[] = []
    for (const turn of batch) {
      const [{ petId }] = turn
      if (held.has(petId)) this.#putAside(petId, turn)
      else others.push(turn)
    }
    if (others.length > 0) this.#together.push(others)
  }

  #putAside(petId: bigint, turn: Turn): void {
    const later = [...(this.#waitingForHeld.get(petId) ?? []), ...(this.#waiting.get(petId) ?? [])]
    this.#waiting.delete(petId)
    this.#waitingForHeld.delete(petId)
    // At the end: the row that was tried longest ago is the next one.
    this.#waitingForHeld.set(petId, [...turn, ...later])
    this.#statistics.waitingUpdates += turn.length
    this.#held.add(petId)
    this.#underWay.delete(petId)
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

function contextsOf(batch: readonly Turn[]): Context[] {
  return batch.flat().flatMap(({ context }) => context ?? [])
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
