import { TransientMap } from '../../collections/transient-map.ts'
import { nothingChanged } from '../../contract/errors.ts'
import type { InventoryStatistics } from '../statistics.ts'
import type { BatchResult } from './batch.ts'
import type { Update } from './quantity-update.ts'
import { MAX_BATCH_SIZE } from './repository.ts'

/**
 * How long after a lock timeout the updates of locked pets are sent individually. It is longer than the timeout, so that one of them
 * that still is locked would have met it again.
 */
const INDIVIDUAL_MS = 400

/** Waiting updates that may share a statement. */
class Backlog {
  /** The updates of each pet, oldest first, and first the pet whose update was sent longest ago. */
  readonly waiting = new TransientMap<bigint, Update[]>()
  /** Maximum updates in a statement. */
  limit = MAX_BATCH_SIZE
}

/**
 * All updates without an outcome, and which of them may share a statement: those of pets whose row another transaction has locked
 * are sent individually at first; those of an API key whose updates PostgreSQL has refused, because of a constraint or a trigger
 * of the operator, never with those of other keys; and all others together.
 *
 * At most one update of a pet is in flight, and it is the oldest of its backlog, so no update overtakes an older one of its API
 * key, even if that one is retried several times.
 */
export class Backlogs {
  readonly #statistics: InventoryStatistics
  readonly #batches = new Backlog()
  /** By API key, and first the key that was served longest ago. */
  readonly #refused = new Map<string, Backlog>()
  readonly #petsInFlight = new TransientMap<bigint, true>()
  /** First the pet that was tried longest ago. Their updates wait in the backlogs above. */
  readonly #lockedPets = new Set<bigint>()
  /** When the last statement met a lock, by `performance.now()`. */
  #metLockAt = 0

  constructor(statistics: InventoryStatistics) {
    this.#statistics = statistics
  }

  get isEmpty(): boolean {
    return this.#petsInFlight.size === 0 && this.#statistics.waitingUpdates === 0
  }

  add(update: Update): void {
    this.#statistics.waitingUpdates++
    this.#insert(update)
  }

  /** Takes the oldest updates of at most `limit` pets for a batch. */
  takeBatch(limit: number): Update[] {
    return this.#take(this.#batches, limit)
  }

  /** Takes the oldest updates of at most `limit` pets, all of one key whose updates PostgreSQL has refused. */
  takeRefused(limit: number): Update[] {
    for (const [key, backlog] of this.#refused) {
      const updates = this.#take(backlog, limit)
      if (updates.length === 0) continue
      this.#refused.delete(key)
      this.#refused.set(key, backlog)
      return updates
    }
    return []
  }

  /**
   * Takes an update of a pet whose row is locked. If no statement has met a lock for a while, it takes those of at most `limit` pets,
   * as the same lock may have held up all of them.
   */
  takeLocked(limit: number): Update[] {
    const taken: Update[] = []
    const maximum = performance.now() - this.#metLockAt < INDIVIDUAL_MS ? 1 : limit
    for (const petId of this.#lockedPets) {
      if (taken.length >= maximum) break
      if (this.#petsInFlight.has(petId)) continue
      const waiting = this.#all().find((backlog) => backlog.waiting.has(petId))?.waiting
      const updates = waiting?.get(petId)
      if (waiting && updates) taken.push(...this.#takeOldest(waiting, petId, updates))
      else this.#lockedPets.delete(petId)
    }
    return taken
  }

  /** Takes back a batch that was sent. Each undecided update is the first waiting one of its pet again. */
  onResult(batch: readonly Update[], { undecided, locked, isRefused = false }: BatchResult): void {
    this.#statistics.batches.observe(batch.length)
    for (const { petId } of batch) {
      this.#petsInFlight.delete(petId)
      this.#lockedPets.delete(petId)
    }
    for (const petId of locked ?? []) this.#lockedPets.add(petId)
    if (locked) this.#metLockAt = performance.now()
    if (isRefused || this.#refused.size > 0) this.#resize(batch, isRefused)
    this.#statistics.waitingUpdates += undecided.length
    for (const update of undecided) this.#insert(update, true)
  }

  /** Rejects the waiting updates that arrived before `time` (`performance.now()`). */
  rejectWaiting(time: number): void {
    for (const { waiting } of this.#all()) {
      for (const [petId, updates] of waiting) {
        const late = updates.filter(({ arrivedAt }) => arrivedAt < time)
        if (late.length === 0) continue
        const others = updates.filter(({ arrivedAt }) => arrivedAt >= time)
        if (others.length > 0) waiting.set(petId, others)
        else waiting.delete(petId)
        this.#statistics.waitingUpdates -= late.length
        for (const update of late) update.reject(this.#lateError(update))
      }
    }
  }

  #all(): Backlog[] {
    return [this.#batches, ...this.#refused.values()]
  }

  /** Adds a waiting update to its backlog, as the last one of its pet or the first. */
  #insert(update: Update, isFirst = false): void {
    const { waiting } = this.#refused.get(keyOf(update)) ?? this.#batches
    const updates = waiting.get(update.petId)
    if (updates === undefined) waiting.set(update.petId, [update])
    else if (isFirst) updates.unshift(update)
    else updates.push(update)
  }

  #take({ waiting, limit }: Backlog, maximum: number): Update[] {
    const taken: Update[] = []
    for (const [petId, updates] of waiting) {
      if (taken.length >= Math.min(limit, maximum)) break
      if (this.#petsInFlight.has(petId) || this.#lockedPets.has(petId)) continue
      taken.push(...this.#takeOldest(waiting, petId, updates))
    }
    return taken
  }

  /** Takes the oldest update of a pet, and moves the pet behind the others. */
  #takeOldest(waiting: Backlog['waiting'], petId: bigint, updates: Update[]): Update[] {
    const taken = updates.splice(0, 1)
    this.#petsInFlight.set(petId, true)
    this.#statistics.waitingUpdates--
    waiting.delete(petId)
    if (updates.length > 0) waiting.set(petId, updates)
    return taken
  }

  /**
   * Separates the keys of a refused batch, and halves the size of their next statement. Any other result doubles it, until they
   * share statements with others again.
   */
  #resize(batch: readonly Update[], isRefused: boolean): void {
    const separated = this.#refused.size
    for (const key of new Set(batch.map(keyOf))) {
      const backlog = this.#refused.get(key) ?? new Backlog()
      backlog.limit = isRefused ? Math.ceil(batch.length / 2) : backlog.limit * 2
      if (backlog.limit < MAX_BATCH_SIZE) this.#refused.set(key, backlog)
      else if (this.#refused.delete(key)) this.#sort(backlog)
    }
    if (this.#refused.size > separated) this.#sort(this.#batches)
  }

  /** Moves the updates of a backlog to those where they belong now. */
  #sort({ waiting }: Backlog): void {
    for (const [petId, updates] of [...waiting]) {
      waiting.delete(petId)
      for (const update of updates) this.#insert(update)
    }
  }

  #lateError({ petId }: Update): Error {
    const [cause, reason] = this.#lockedPets.has(petId)
      ? (['locked', 'Another transaction has locked the entry or the whole inventory.'] as const)
      : (['late', 'The database is too busy.'] as const)
    return nothingChanged(cause, reason)
  }
}

function keyOf({ caller }: Update): string {
  return caller?.key?.name ?? ''
}
