import { ApiError } from '../../contract/errors.ts'
import { hasCause, isInFunction, mayConcernOneRow } from '../../database/error-meaning.ts'
import { causeOf } from '../../database/errors.ts'
import { isMet } from '../entry/condition.ts'
import type { InventoryItem } from '../entry/schemas.ts'
import type { Backlogs } from './backlogs.ts'
import type { Update } from './quantity-update.ts'
import type { UpdateRepository } from './repository.ts'

/**
 * How often an update is sent whose statement returns no row, although its entry exists and meets its condition: another
 * transaction may have changed or replaced the entry between the statement and the lookup, or a trigger has skipped the row.
 */
const MAX_ATTEMPTS = 3

/**
 * Sends batches, each of updates of different pets, and decides what happens to them:
 *
 * | Response of PostgreSQL                       | Meaning                           | Next                              |
 * | -------------------------------------------- | --------------------------------- | --------------------------------- |
 * | the entry as stored                          | committed                         | answered, 200                     |
 * | no row, and there is no entry                | nothing to update                 | answered, 404                     |
 * | no row, and the entry does not meet the      | nothing changed                   | answered, 412                     |
 * | condition                                    |                                   |                                   |
 * | no row, though the entry meets the condition | see `MAX_ATTEMPTS`                | sent again, at last answered, 400 |
 * | lock timeout (55P03), the row is locked      | nothing changed                   | sent again individually           |
 * | lock timeout, the row is not locked          | nothing changed; freed just now,  | sent again without the locked     |
 * |                                              | or the whole table is locked      | ones                              |
 * | lock timeout in a trigger, no row is locked  | nothing changed                   | sent again individually           |
 * | refusal that one update may have caused,     | nothing changed                   | sent again in halves              |
 * | batch of several                             |                                   |                                   |
 * | refusal of a single update; any other error; | failed, or the outcome is unknown | rejected, never sent again        |
 * | statement timeout (57014); no answer         |                                   |                                   |
 *
 * Updates that have waited for too long are rejected instead of being sent again.
 */
export class BatchSender {
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
   * Sends a batch until its updates are decided, and returns those that are not, because their row is locked or PostgreSQL has
   * refused the batch.
   */
  async send(batch: readonly Update[], attempt = 1): Promise<readonly Update[]> {
    const updates = this.#inTime(batch)
    if (updates.length === 0) return []
    this.#backlogs.statistics.batches.observe(updates.length)
    let entries: ReadonlyMap<bigint, InventoryItem>
    try {
      entries = await this.#repository.setQuantities(inOrder(updates))
    } catch (error) {
      return this.#afterError(updates, error, attempt)
    }
    this.#backlogs.onExecuted(updates)
    const without: Update[] = []
    for (const update of updates) {
      const entry = entries.get(update.petId)
      if (entry === undefined) without.push(update)
      else this.#resolve(update, entry)
    }
    return without.length === 0 ? [] : this.#afterNoRow(without, attempt)
  }

  #resolve(update: Update, item: InventoryItem | undefined): void {
    this.#backlogs.remove(update)
    update.resolve(item)
  }

  #reject(update: Update, error: unknown): void {
    this.#backlogs.remove(update)
    update.reject(error)
  }

  /** Rejects the updates that have waited for too long, and returns the others. */
  #inTime(updates: readonly Update[]): readonly Update[] {
    const time = performance.now() - this.#waitMs
    for (const update of updates) if (update.arrivedAt < time) this.#backlogs.rejectLate(update)
    return updates.filter(({ arrivedAt }) => arrivedAt >= time)
  }

  async #afterError(updates: readonly Update[], error: unknown, attempt: number): Promise<readonly Update[]> {
    if (hasCause(error, 'locked')) return this.#afterLock(updates, error, attempt)
    if (mayConcernOneRow(error)) {
      this.#backlogs.onRefused(updates)
      if (updates.length > 1) return updates
    }
    for (const update of updates) this.#reject(update, error)
    return []
  }

  /**
   * Sends the updates again whose row is not locked, and returns the others. If no row is locked, the whole table is, or the lock
   * was released just now.
   */
  async #afterLock(updates: readonly Update[], error: unknown, attempt: number): Promise<readonly Update[]> {
    const locked = await this.#lockedAmong(updates, error)
    // One that is late counts as locked: it would delay each batch that it is in for as long as its row is locked.
    const time = performance.now() - this.#waitMs
    const isFree = ({ petId, arrivedAt }: Update): boolean => arrivedAt >= time && !locked.has(petId)
    const others = updates.filter((update) => !isFree(update))
    for (const update of others) this.#backlogs.onLocked(update)
    return [...others, ...(await this.send(updates.filter(isFree), attempt))]
  }

  /**
   * Returns the pets whose row is locked. That of a single update is certainly locked. If none is, but the statement waited for more
   * than the table, a trigger waits for a lock elsewhere, and any update may be the cause: then all count as locked.
   */
  async #lockedAmong(updates: readonly Update[], error: unknown): Promise<ReadonlySet<bigint>> {
    const petIds = updates.map(({ petId }) => petId)
    if (petIds.length === 1) return new Set(petIds)
    try {
      const locked = await this.#repository.lockedAmong(petIds)
      return locked.size === 0 && isInFunction(causeOf(error)) ? new Set(petIds) : locked
    } catch {
      // The check itself locks only the table.
      return new Set()
    }
  }

  /** Finds out why PostgreSQL returned no row for these updates, and decides them or sends them again. */
  async #afterNoRow(updates: readonly Update[], attempt: number): Promise<readonly Update[]> {
    let tags: ReadonlyMap<bigint, string>
    try {
      tags = await this.#repository.tagsOf(updates.map(({ petId }) => petId))
    } catch (error) {
      for (const update of updates) this.#reject(update, error)
      return []
    }
    const again: Update[] = []
    for (const update of updates) {
      const tag = tags.get(update.petId)
      if (tag === undefined) this.#resolve(update, undefined)
      else if (!isMet(update.condition, tag)) this.#reject(update, preconditionFailed(tag))
      else if (attempt >= MAX_ATTEMPTS) this.#reject(update, ruleViolation())
      else again.push(update)
    }
    return this.send(again, attempt + 1)
  }
}

/** Returns the updates by petId. With the same order in all processes, two that update the same pets do not deadlock. */
function inOrder(updates: readonly Update[]): Update[] {
  return [...updates].sort((a, b) => (a.petId < b.petId ? -1 : 1))
}

/** Returns a 400: a constraint or a trigger that the operator has added does not allow the update. */
export function ruleViolation(): ApiError {
  return new ApiError(400, 'The database rejects this quantity.')
}

/** Returns a 412 with the current entity tag of the entry, which is given without quotes. */
function preconditionFailed(tag: string): ApiError {
  return new ApiError(412, 'The entry does not match If-Match or If-None-Match. Nothing was changed.', {
    etag: `"${tag}"`,
    'cache-control': 'no-store, no-transform',
  })
}
