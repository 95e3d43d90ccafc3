import { TransientMap } from '../../collections/transient-map.ts'
import type { InventoryStatistics } from '../statistics.ts'
import { PendingUpdates, type Update } from './pending-updates.ts'
import { MAX_BATCH_SIZE } from './repository.ts'

/**
 * A refused statement is sent again in this many parts, and each success doubles their size. With one bad update among 500, that
 * takes about 15 statements, and if all are bad, 503.
 */
const PARTS = 8

/** Updates that may share a statement. */
export class Backlog {
  /** The pets that have one, longest waiting first. Those whose update has left the backlog are skipped. */
  readonly pets = new TransientMap<PendingUpdates, true>()
  /** Statements in flight. */
  inFlight = 0
  /** The number of the last statement. */
  lastStatement = 0
  /** Maximum updates in a statement. */
  limit: number

  constructor(limit: number) {
    this.limit = limit
  }

  /** Makes the oldest updates of at most `limit` pets the ones in flight, for one statement, and returns these pets. */
  take(limit: number): PendingUpdates[] {
    const taken: PendingUpdates[] = []
    for (const pet of this.pets.keys()) {
      if (taken.length >= Math.min(limit, this.limit)) break
      if (pet.take(this)) taken.push(pet)
    }
    return taken
  }
}

/**
 * All updates without an outcome, and which of them may share a statement: those of pets whose row another transaction has locked
 * are sent individually; those of an API key whose updates PostgreSQL has refused, because of a constraint or a trigger of the
 * operator, never with those of other keys; and all others together.
 */
export class Backlogs {
  readonly batches = new Backlog(MAX_BATCH_SIZE)
  readonly locked = new Backlog(1)
  readonly statistics: InventoryStatistics
  /** All pets that have an update, in flight or not. */
  readonly pets = new TransientMap<bigint, PendingUpdates>()
  /** By API key. */
  readonly #refused = new Map<string, Backlog>()

  constructor(statistics: InventoryStatistics) {
    this.statistics = statistics
  }

  /** Whether the updates of a pet may be in different backlogs. */
  get areSeparated(): boolean {
    return this.#refused.size > 0
  }

  /** Returns the backlog of an update whose row is not locked. */
  of(update: Update): Backlog {
    return this.#refused.get(keyOf(update)) ?? this.batches
  }

  petOf(petId: bigint): PendingUpdates {
    const pet = this.pets.get(petId) ?? new PendingUpdates(petId, this)
    this.pets.set(petId, pet)
    return pet
  }

  /**
   * Returns the backlogs that are retried and have pets: first those with the fewest statements in flight, as a locked row occupies a
   * connection until the lock timeout, and of these the one that was served longest ago.
   */
  retries(): Backlog[] {
    return [this.locked, ...this.#refused.values()]
      .filter(({ pets }) => pets.size > 0)
      .sort((a, b) => a.inFlight - b.inFlight || a.lastStatement - b.lastStatement)
  }

  /** Separates the keys of the updates in flight of these pets, after PostgreSQL has refused their statement. */
  onRefused(pets: readonly PendingUpdates[]): void {
    const limit = Math.ceil(pets.length / PARTS)
    for (const { inFlight } of pets) {
      if (inFlight === undefined) continue
      const backlog = this.#refused.get(keyOf(inFlight)) ?? new Backlog(limit)
      backlog.limit = limit
      this.#refused.set(keyOf(inFlight), backlog)
    }
  }

  /** Records that PostgreSQL has executed a statement with the updates in flight of these pets. */
  onExecuted([pet]: readonly PendingUpdates[]): void {
    const key = this.areSeparated && pet?.inFlight !== undefined ? keyOf(pet.inFlight) : ''
    const backlog = this.#refused.get(key)
    if (backlog === undefined) return
    backlog.limit *= 2
    if (backlog.limit < MAX_BATCH_SIZE) return
    this.#refused.delete(key)
    for (const pet of backlog.pets.keys()) pet.enqueue()
  }
}

function keyOf({ caller }: Update): string {
  return caller?.key?.name ?? ''
}
