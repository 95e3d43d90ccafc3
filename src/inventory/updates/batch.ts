import { ApiError } from '../../contract/errors.ts'
import { hasCause, mayConcernOneRow } from '../../database/error-meaning.ts'
import { isMet } from '../entry/condition.ts'
import type { InventoryItem } from '../entry/schemas.ts'
import type { Backlogs } from './backlogs.ts'
import { FastestStatement } from './fastest-statement.ts'
import type { PendingUpdates } from './pending-updates.ts'
import type { QuantityUpdate } from './quantity-update.ts'
import type { UpdateRepository } from './repository.ts'

/**
 * How often an update is sent whose statement returns no row, although its entry exists and meets its condition: another
 * transaction may have changed or replaced the entry between the statement and the lookup, or a trigger has skipped the row.
 */
const MAX_ATTEMPTS = 3

/** Time that PostgreSQL takes for each update of a batch. With the history on, it takes twice as long. */
const EXECUTION_MS = 0.02

/**
 * Sends batches, each of the updates in flight of different pets, and decides what happens to them:
 *
 * | Response of PostgreSQL                       | Meaning                           | Next                              |
 * | -------------------------------------------- | --------------------------------- | --------------------------------- |
 * | the entry as stored                          | committed                         | answered, 200                     |
 * | no row, and there is no entry                | nothing to update                 | answered, 404                     |
 * | no row, and the entry does not meet the      | nothing changed                   | answered, 412                     |
 * | condition                                    |                                   |                                   |
 * | no row, though the entry meets the condition | see `MAX_ATTEMPTS`                | sent again, at last answered, 400 |
 * | lock timeout (55P03), the row is locked, or  | nothing changed                   | sent again individually           |
 * | no time is left to check                     |                                   |                                   |
 * | lock timeout, the row is not locked          | nothing changed; freed just now,  | sent again without the locked     |
 * |                                              | or the whole table is locked      | ones                              |
 * | refusal that one update may have caused,     | nothing changed                   | sent again in parts; see `Backlogs`  |
 * | batch of several                             |                                   |                                   |
 * | refusal of a single update; any other error; | failed, or the outcome is unknown | rejected, never sent again        |
 * | statement timeout (57014); no answer         |                                   |                                   |
 *
 * Updates that have waited for too long are rejected instead of being sent again.
 */
export class BatchSender {
  readonly fastest = new FastestStatement()
  readonly #repository: UpdateRepository
  readonly #backlogs: Backlogs
  readonly #waitMs: number

  /** @param waitMs how long after its arrival an update may still be sent */
  constructor(repository: UpdateRepository, backlogs: Backlogs, waitMs: number) {
    this.#repository = repository
    this.#backlogs = backlogs
    this.#waitMs = waitMs
  }

  /**
   * Sends a batch until its updates are decided, and returns the pets that are not, because their row is locked or PostgreSQL has
   * refused the batch.
   */
  async send(batch: readonly PendingUpdates[], attempt = 1): Promise<readonly PendingUpdates[]> {
    const pets = this.#inTime(batch)
    if (pets.length === 0) return []
    this.#backlogs.statistics.batches.observe(pets.length)
    const sentAt = performance.now()
    let entries: ReadonlyMap<bigint, InventoryItem>
    try {
      entries = await this.#repository.setQuantities(inOrder(pets))
    } catch (error) {
      return this.#afterError(pets, error, attempt)
    }
    this.#backlogs.onExecuted(pets)
    this.fastest.observe(performance.now() - sentAt - pets.length * EXECUTION_MS)
    const without: PendingUpdates[] = []
    for (const pet of pets) {
      const entry = entries.get(pet.petId)
      if (entry === undefined) without.push(pet)
      else pet.resolve(entry)
    }
    return without.length === 0 ? [] : this.#afterNoRow(without, attempt)
  }

  /** Rejects the updates that have waited for too long, and returns the pets of the others. */
  #inTime(pets: readonly PendingUpdates[]): readonly PendingUpdates[] {
    const time = performance.now() - this.#waitMs
    return pets.filter((pet) => pet.isInTime(time))
  }

  async #afterError(
    pets: readonly PendingUpdates[],
    error: unknown,
    attempt: number,
  ): Promise<readonly PendingUpdates[]> {
    if (hasCause(error, 'locked')) return this.#withoutLocked(pets, attempt)
    if (mayConcernOneRow(error)) {
      this.#backlogs.onRefused(pets)
      if (pets.length > 1) return pets
    }
    for (const pet of pets) pet.reject(error)
    return []
  }

  /**
   * Sends the pets again whose row is not locked, and returns the others. A pet without time for the check counts as locked: it
   * would delay each batch that it is in for as long as its row is locked.
   */
  async #withoutLocked(pets: readonly PendingUpdates[], attempt: number): Promise<readonly PendingUpdates[]> {
    const time = performance.now() - this.#waitMs
    const checked = pets.filter(({ inFlight }) => inFlight !== undefined && inFlight.arrivedAt >= time)
    let locked: ReadonlySet<bigint> = new Set()
    // The row of a single update is certainly locked.
    if (pets.length > 1 && checked.length > 0) {
      try {
        locked = await this.#repository.lockedAmong(checked.map(({ petId }) => petId))
      } catch {
        // The check itself locks only the table.
      }
      // If no row is locked, the whole table is, or the lock was released just now.
      if (locked.size === 0) for (const pet of checked) pet.waitsForLock = true
    }
    const free = pets.length > 1 ? checked.filter(({ petId }) => !locked.has(petId)) : []
    const others = pets.filter((pet) => !free.includes(pet))
    for (const pet of others) pet.isLocked = pet.waitsForLock = true
    return [...others, ...(await this.send(free, attempt))]
  }

  /** Finds out why PostgreSQL returned no row for these pets, and decides their updates or sends them again. */
  async #afterNoRow(batch: readonly PendingUpdates[], attempt: number): Promise<readonly PendingUpdates[]> {
    const pets = this.#inTime(batch)
    if (pets.length === 0) return []
    let tags: ReadonlyMap<bigint, string>
    try {
      tags = await this.#repository.tagsOf(pets.map(({ petId }) => petId))
    } catch (error) {
      for (const pet of pets) pet.reject(error)
      return []
    }
    const again: PendingUpdates[] = []
    for (const pet of pets) {
      const tag = tags.get(pet.petId)
      if (tag === undefined) pet.resolve(undefined)
      else if (!isMet(pet.inFlight?.condition, tag)) pet.reject(preconditionFailed(tag))
      else if (attempt >= MAX_ATTEMPTS) pet.reject(ruleViolation())
      else again.push(pet)
    }
    return this.send(again, attempt + 1)
  }
}

/** Returns the updates in flight by petId. With the same order in all processes, two that update the same pets do not deadlock. */
function inOrder(pets: readonly PendingUpdates[]): QuantityUpdate[] {
  const updates = pets.flatMap(({ inFlight }) => inFlight ?? [])
  return updates.sort((a, b) => (a.petId < b.petId ? -1 : 1))
}

/** Returns a 400: a constraint or a trigger that the operator has added does not allow the update. */
export function ruleViolation(): ApiError {
  return new ApiError(400, 'The database rejects this quantity.')
}

/** Returns a 412 with the current entity tag of the entry, which is given without quotes. */
export function preconditionFailed(tag: string): ApiError {
  return new ApiError(412, 'The entry does not match If-Match or If-None-Match. Nothing was changed.', {
    etag: `"${tag}"`,
    'cache-control': 'no-store, no-transform',
  })
}
