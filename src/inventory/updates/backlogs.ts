import { TransientMap } from '../../collections/transient-map.ts'
import { nothingChanged } from '../../contract/api-error.ts'
import type { InventoryStatistics } from '../statistics.ts'
import type { Batch, BatchResult } from './batch.ts'
import { moveTo, type QueuedState, type Update } from './quantity-update.ts'

/** Maximum updates in one statement. */
export const MAX_BATCH_SIZE = 500

/** How long after a lock timeout statements skip locked rows, or are sent individually. */
const AFTER_TIMEOUT_MS = 1000

/** Interval between statements for all locked pets. */
const POLL_MS = 50

/** Updates that may share a statement. */
class Backlog {
  readonly state: QueuedState
  /** The updates of each pet, oldest first, and first the pet whose update was sent longest ago. */
  readonly updates = new TransientMap<bigint, Update[]>()
  /** Maximum updates in a statement. */
  limit = MAX_BATCH_SIZE

  constructor(state: QueuedState) {
    this.state = state
  }
}

/**
 * All updates without an outcome. Each is in one of these states, or SETTLED, when its caller has the outcome:
 *
 * - WAITING, at first: it may share a statement with all others that wait.
 * - LOCKED: a statement did not get the row of its pet, or what a trigger waits for. All updates of the pet are locked until one is
 *   decided. They are sent individually, to wait in PostgreSQL's queue, and together at intervals, without those whose row still is
 *   locked.
 * - REFUSED: PostgreSQL has refused an update of its API key, because of a constraint or a trigger of the operator. It shares
 *   statements only with others of the key, more with each success, until the key waits again.
 * - IN FLIGHT: it is sent. At most one update of a pet is, the oldest in its state, so none overtakes an older one of its API key, even
 *   if that one is sent several times. One that PostgreSQL has not decided is WAITING, LOCKED or REFUSED again.
 *
 * These three change into each other with their pet and key, and are settled when they are late.
 *
 * After a lock timeout, statements skip locked rows, so that none waits for each newly locked row. If one that skips them has a timeout,
 * a trigger or the whole table waits for another lock: then waiting updates are sent individually, so that only those become locked
 * that have a timeout themselves.
 */
export class Backlogs {
  readonly #statistics: InventoryStatistics
  readonly #waiting = new Backlog('waiting')
  readonly #locked = new Backlog('locked')
  /** By API key, and first the key that was served longest ago. */
  readonly #refused = new Map<string, Backlog>()
  /** The keys of refused updates in flight: one that sends many does not delay the other ones. */
  readonly #refusedInFlight = new Set<string>()
  readonly #petsInFlight = new TransientMap<bigint, true>()
  readonly #lockedPets = new Set<bigint>()
  /** When a statement that waits for locked rows had the last timeout, and one that skips them, by `performance.now()`. */
  #timeoutAt = Number.NEGATIVE_INFINITY
  #blockedAt = Number.NEGATIVE_INFINITY
  #polledAt = Number.NEGATIVE_INFINITY

  constructor(statistics: InventoryStatistics) {
    this.#statistics = statistics
  }

  get isEmpty(): boolean {
    return this.#petsInFlight.size === 0 && this.#statistics.waitingUpdates === 0
  }

  /** Whether to send waiting updates individually. */
  get isIndividual(): boolean {
    return performance.now() - this.#blockedAt < AFTER_TIMEOUT_MS
  }

  add(update: Update): void {
    this.#statistics.waitingUpdates++
    this.#insert(update)
  }

  /** Takes the oldest updates of at most `limit` pets in a state. If it is `refused`, all are of one key. */
  take(state: QueuedState, limit: number): Batch {
    if (state === 'locked') return this.#takeLocked(limit)
    const skipsLocked = performance.now() - this.#timeoutAt < AFTER_TIMEOUT_MS
    if (state === 'waiting') return { state, updates: this.#take(this.#waiting, limit), skipsLocked }
    for (const [key, backlog] of this.#refused) {
      const updates = this.#refusedInFlight.has(key) ? [] : this.#take(backlog, limit)
      if (updates.length === 0) continue
      this.#refusedInFlight.add(key)
      this.#refused.delete(key)
      this.#refused.set(key, backlog)
      return { state, updates, skipsLocked }
    }
    return { state, updates: [], skipsLocked }
  }

  #takeLocked(limit: number): Batch {
    const now = performance.now()
    const skipsLocked = now - this.#polledAt >= POLL_MS
    const updates = this.#take(this.#locked, skipsLocked ? limit : 1)
    if (skipsLocked && updates.length > 0) this.#polledAt = now
    return { state: 'locked', updates, skipsLocked }
  }

  /** Takes back a batch that was sent. Each undecided update is the oldest of its pet in its state again. */
  onResult({ state, updates, skipsLocked }: Batch, { undecided, reason }: BatchResult): void {
    this.#statistics.batches.observe(updates.length)
    const left = new Set(undecided)
    for (const update of updates) {
      this.#petsInFlight.delete(update.petId)
      if (state === 'refused') this.#refusedInFlight.delete(keyOf(update))
      if (!left.has(update)) moveTo(update, 'settled')
    }
    const isTimeout = reason === 'lock timeout'
    if (isTimeout && !skipsLocked) this.#timeoutAt = performance.now()
    if (isTimeout && skipsLocked && state !== 'locked') this.#blockedAt = performance.now()
    // The next statement that skips locked rows can tell why.
    if (reason === 'no row' && !skipsLocked) this.#polledAt = Number.NEGATIVE_INFINITY
    const isLocked = reason === 'no row' || (isTimeout && (state === 'locked' || updates.length === 1))
    if (isLocked || state === 'locked')
      for (const update of updates) this.#setLocked(update.petId, isLocked && left.has(update))
    if (reason === 'refusal' || this.#refused.size > 0) this.#resize(updates, reason === 'refusal')
    this.#statistics.waitingUpdates += undecided.length
    for (const update of undecided) this.#insert(update)
  }

  /** Rejects the queued updates that arrived before `time` (`performance.now()`). */
  rejectLate(time: number): void {
    for (const { state, updates: queued } of this.#all()) {
      for (const [petId, updates] of queued) {
        const late = updates.filter(({ arrivedAt }) => arrivedAt < time)
        updates.splice(0, late.length)
        if (updates.length === 0) queued.delete(petId)
        if (updates.length === 0 && !this.#petsInFlight.has(petId)) this.#lockedPets.delete(petId)
        this.#statistics.waitingUpdates -= late.length
        for (const update of late) {
          moveTo(update, 'settled')
          update.reject(lateError(state))
        }
      }
    }
  }

  #all(): Backlog[] {
    return [this.#waiting, this.#locked, ...this.#refused.values()]
  }

  /** Adds an update to the backlog where it belongs now, in the order of arrival. */
  #insert(update: Update): void {
    const { petId, arrivedAt } = update
    const { state, updates: queued } = this.#lockedPets.has(petId)
      ? this.#locked
      : (this.#refused.get(keyOf(update)) ?? this.#waiting)
    moveTo(update, state)
    const updates = queued.get(petId)
    if (updates === undefined) queued.set(petId, [update])
    else updates.splice(updates.findLastIndex((other) => other.arrivedAt < arrivedAt) + 1, 0, update)
  }

  /** Takes the oldest update of each of at most `maximum` pets, and moves these pets behind the others. */
  #take(backlog: Backlog, maximum: number): Update[] {
    const taken: Update[] = []
    for (const [petId, updates] of backlog.updates) {
      if (taken.length >= Math.min(backlog.limit, maximum)) break
      if (this.#petsInFlight.has(petId)) continue
      const [oldest, ...others] = updates
      backlog.updates.delete(petId)
      if (others.length > 0) backlog.updates.set(petId, others)
      if (oldest === undefined) continue
      moveTo(oldest, 'in flight')
      this.#petsInFlight.set(petId, true)
      taken.push(oldest)
    }
    this.#statistics.waitingUpdates -= taken.length
    return taken
  }

  #setLocked(petId: bigint, isLocked: boolean): void {
    if (this.#lockedPets.has(petId) === isLocked) return
    if (isLocked) this.#lockedPets.add(petId)
    else this.#lockedPets.delete(petId)
    for (const backlog of this.#all()) this.#sort(backlog, petId)
  }

  /**
   * Separates the keys of a refused batch, and halves the size of their next statement. Any other result doubles it, until they
   * share statements with others again.
   */
  #resize(batch: readonly Update[], isRefused: boolean): void {
    const separated = this.#refused.size
    for (const key of new Set(batch.map(keyOf))) {
      const backlog = this.#refused.get(key) ?? new Backlog('refused')
      backlog.limit = isRefused ? Math.ceil(batch.length / 2) : backlog.limit * 2
      if (backlog.limit < MAX_BATCH_SIZE) this.#refused.set(key, backlog)
      else if (this.#refused.delete(key)) this.#sort(backlog)
    }
    if (this.#refused.size > separated) this.#sort(this.#waiting)
  }

  /** Moves the updates of a backlog, or those of one pet, to where they belong now. */
  #sort({ updates: queued }: Backlog, ...petIds: bigint[]): void {
    for (const petId of petIds.length > 0 ? petIds : Array.from(queued, ([petId]) => petId)) {
      const updates = queued.get(petId) ?? []
      queued.delete(petId)
      for (const update of updates) this.#insert(update)
    }
  }
}

function lateError(state: QueuedState): Error {
  return state === 'locked'
    ? nothingChanged('locked', 'Another transaction has locked the entry or the whole inventory.')
    : nothingChanged('late', 'The database is too busy.')
}

function keyOf({ caller }: Update): string {
  return caller?.key?.name ?? ''
}
