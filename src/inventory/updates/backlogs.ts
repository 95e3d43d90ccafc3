import { TransientMap } from '../../collections/transient-map.ts'
import { serviceUnavailable } from '../../contract/errors.ts'
import type { InventoryStatistics } from '../statistics.ts'
import type { Update } from './quantity-update.ts'
import { MAX_BATCH_SIZE } from './repository.ts'

/** Waiting updates that may share a statement. */
export class Backlog {
  /** The updates of each pet, oldest first, and first the pet whose update was sent longest ago. */
  readonly waiting = new TransientMap<bigint, Update[]>()
  /** Statements in flight. */
  inFlight = 0
  /** When the last statement was sent, by `performance.now()`. */
  lastSentAt = 0
  /** Maximum updates in a statement. */
  limit: number

  constructor(limit: number) {
    this.limit = limit
  }
}

/**
 * All updates without an outcome, and which of them may share a statement: those of pets whose row another transaction has locked
 * are sent individually; those of an API key whose updates PostgreSQL has refused, because of a constraint or a trigger of the
 * operator, never with those of other keys; and all others together.
 *
 * At most one update of a pet is in flight, and it is the oldest of its backlog, so no update overtakes an older one of its API
 * key, even if that one is retried several times.
 */
export class Backlogs {
  readonly statistics: InventoryStatistics
  readonly batches = new Backlog(MAX_BATCH_SIZE)
  readonly #locked = new Backlog(1)
  /** By API key. */
  readonly #refused = new Map<string, Backlog>()
  readonly #petsInFlight = new TransientMap<bigint, true>()
  readonly #lockedPets = new Set<bigint>()

  constructor(statistics: InventoryStatistics) {
    this.statistics = statistics
  }

  get isEmpty(): boolean {
    return this.#petsInFlight.size === 0 && this.#all().every(({ waiting }) => waiting.size === 0)
  }

  add(update: Update): void {
    this.statistics.waitingUpdates++
    this.#append(update)
  }

  /** Takes the oldest updates of at most `limit` pets for a statement. */
  take(backlog: Backlog, limit: number): Update[] {
    const taken: Update[] = []
    for (const [petId, updates] of backlog.waiting) {
      if (taken.length >= Math.min(limit, backlog.limit)) break
      if (this.#petsInFlight.has(petId)) continue
      const oldest = updates.shift()
      if (oldest !== undefined) taken.push(oldest)
      this.#petsInFlight.set(petId, true)
      backlog.waiting.delete(petId)
      if (updates.length > 0) backlog.waiting.set(petId, updates)
    }
    this.statistics.waitingUpdates -= taken.length
    return taken
  }

  /** Makes an update in flight the first waiting one of its pet again, as its statement has changed nothing. */
  putBack(update: Update): void {
    this.#petsInFlight.delete(update.petId)
    this.statistics.waitingUpdates++
    const { waiting } = this.#of(update)
    waiting.set(update.petId, [update, ...(waiting.get(update.petId) ?? [])])
  }

  /** Forgets an update in flight that is decided: its row is not locked. */
  remove({ petId }: Update): void {
    this.#petsInFlight.delete(petId)
    if (this.#lockedPets.delete(petId)) this.#sort(petId)
  }

  /** Rejects an update in flight that is late. Its row stays locked, if it was. */
  rejectLate(update: Update): void {
    this.#petsInFlight.delete(update.petId)
    update.reject(this.#lateError(update))
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
        this.statistics.waitingUpdates -= late.length
        for (const update of late) update.reject(this.#lateError(update))
      }
    }
    for (const petId of this.#lockedPets) {
      if (!this.#locked.waiting.has(petId) && !this.#petsInFlight.has(petId)) this.#lockedPets.delete(petId)
    }
  }

  /**
   * Returns the backlogs that are retried and have updates: first those with the fewest statements in flight, as a locked row
   * occupies a connection until the lock timeout, and of these the one that was served longest ago.
   */
  retries(): Backlog[] {
    return [this.#locked, ...this.#refused.values()]
      .filter(({ waiting }) => waiting.size > 0)
      .sort((a, b) => a.inFlight - b.inFlight || a.lastSentAt - b.lastSentAt)
  }

  /** Records that another transaction has locked the row of an update in flight. */
  onLocked({ petId }: Update): void {
    this.#lockedPets.add(petId)
    this.#sort(petId)
  }

  /**
   * Separates the keys of these updates, after PostgreSQL has refused their statement. A refusal halves the size of the next
   * statement of a key, and a success doubles it.
   */
  onRefused(updates: readonly Update[]): void {
    const limit = Math.ceil(updates.length / 2)
    const separated = this.#refused.size
    for (const key of new Set(updates.map(keyOf))) {
      const backlog = this.#refused.get(key) ?? new Backlog(limit)
      backlog.limit = limit
      this.#refused.set(key, backlog)
    }
    if (this.#refused.size === separated) return
    for (const [petId] of [...this.batches.waiting]) this.#sort(petId)
  }

  /** Records that PostgreSQL has executed a statement with these updates. */
  onExecuted([update]: readonly Update[]): void {
    if (this.#refused.size === 0 || update === undefined) return
    const key = keyOf(update)
    const backlog = this.#refused.get(key)
    if (backlog === undefined) return
    backlog.limit *= 2
    if (backlog.limit < MAX_BATCH_SIZE) return
    this.#refused.delete(key)
    for (const [, updates] of backlog.waiting) for (const waiting of updates) this.#append(waiting)
  }

  #all(): Backlog[] {
    return [this.batches, this.#locked, ...this.#refused.values()]
  }

  #of(update: Update): Backlog {
    if (this.#lockedPets.has(update.petId)) return this.#locked
    return this.#refused.get(keyOf(update)) ?? this.batches
  }

  #append(update: Update): void {
    const { waiting } = this.#of(update)
    const updates = waiting.get(update.petId)
    if (updates === undefined) waiting.set(update.petId, [update])
    else updates.push(update)
  }

  /** Moves the waiting updates of a pet to the backlogs where they belong now. */
  #sort(petId: bigint): void {
    const updates = this.#all().flatMap(({ waiting }) => waiting.get(petId) ?? [])
    for (const { waiting } of this.#all()) waiting.delete(petId)
    for (const update of updates.sort((a, b) => a.arrivedAt - b.arrivedAt)) this.#append(update)
  }

  #lateError(update: Update): Error {
    const [cause, reason] = this.#lockedPets.has(update.petId)
      ? (['locked', 'Another transaction has locked the entry or the whole inventory.'] as const)
      : (['late', 'The database is too busy.'] as const)
    return serviceUnavailable(cause, `${reason} Nothing was changed. Try again shortly.`)
  }
}

function keyOf({ caller }: Update): string {
  return caller?.key?.name ?? ''
}
