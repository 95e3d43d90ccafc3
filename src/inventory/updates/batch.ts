import { ApiError } from '../../contract/errors.ts'
import {
  isRemoteRefusal,
  mayConcernOneRow,
  mayConcernOneValue,
  wasRefused,
} from '../../database/errors/failures.ts'
import { isLocked } from '../../database/errors/sqlstate.ts'
import type { PendingUpdates } from './pending-updates.ts'
import type { QuantityUpdate, Written } from './quantity-update.ts'
import type { UpdateRepository } from './statements.ts'

/**
 * Sends a batch and decides what happens to the updates of each pet. When it returns, none of them is in flight:
 *
 * | Response of PostgreSQL                       | Meaning                           | Next                              |
 * | -------------------------------------------- | --------------------------------- | --------------------------------- |
 * | the entry as stored                          | committed                         | answered, 200                     |
 * | the entry is not as the condition requires   | nothing changed                   | answered, 412                     |
 * | no row, and there is no entry                | nothing to update                 | answered, 404                     |
 * | no row, though there is an entry             | a trigger skipped the row, or an  | retry; the second time like a     |
 * |                                              | import replaced it meanwhile      | refusal of a single pet, 400      |
 * | lock timeout (55P03), the row is locked, or  | nothing changed                   | locked: retry individually        |
 * | no time is left to check                     |                                   |                                   |
 * | lock timeout, the row is not locked          | nothing changed; freed just now,  | ready: retry as a batch           |
 * |                                              | or the whole table is locked      |                                   |
 * | refusal that one update may have caused,     | nothing changed                   | ready: retry in batches of half   |
 * | batch of several                             |                                   | the size                          |
 * | refusal that one quantity may have caused,   | nothing changed                   | ready: retry the older half first |
 * | single pet with several updates              |                                   |                                   |
 * | the server cannot reach the one with the     | nothing changed; rows of other    | ready: retry individually         |
 * | row (Citus), batch of several                | updates may be reachable          |                                   |
 * | refusal of a single update; any other error; | failed, or the outcome is unknown | rejected, never sent again        |
 * | statement timeout (57014); no answer         |                                   |                                   |
 *
 * Returns false if the outcome is unknown.
 *
 * @param hasInTime rejects the updates in flight of a pet that have exceeded their wait time, and returns whether it has others.
 *   Only for these is a second statement sent, so that no caller waits longer because of it.
 */
export async function sendBatch(
  repository: UpdateRepository,
  batch: readonly PendingUpdates[],
  hasInTime: (pet: PendingUpdates) => boolean,
): Promise<boolean> {
  let written: Written
  const supersedes = batch.some(({ inFlight }) => inFlight.length > 1)
  try {
    written = await repository.setQuantities(
      inOrder(batch.flatMap(({ written }) => written ?? [])),
      supersedes,
    )
  } catch (error) {
    if (isLocked(error)) await retryWithoutLocked(repository, batch, hasInTime)
    else if (batch.length > 1 && isRemoteRefusal(error)) retryInBatchesOf(1, batch)
    else if (batch.length > 1 && mayConcernOneRow(error)) retryInBatchesOf(Math.ceil(batch.length / 2), batch)
    else if (mayConcernOneValue(error)) for (const pet of batch) isolate(pet, error)
    else for (const pet of batch) reject(pet, error)
    return wasRefused(error)
  }
  const undecided = batch.filter((pet) => !settle(pet, written))
  if (undecided.length > 0) await decide(repository, undecided, hasInTime)
  return true
}

/** Sorts by petId. With the same order in all processes, two that update the same pets do not deadlock. */
function inOrder(updates: readonly QuantityUpdate[]): QuantityUpdate[] {
  return updates.toSorted((a, b) => (a.petId < b.petId ? -1 : 1))
}

/**
 * Has pets with a locked row retried individually, and the others as a batch. A pet without time for the check counts as
 * locked: it would delay each batch that it is in for as long as its row is locked.
 */
async function retryWithoutLocked(
  repository: UpdateRepository,
  batch: readonly PendingUpdates[],
  hasInTime: (pet: PendingUpdates) => boolean,
): Promise<void> {
  const checked = new Set(batch.filter(hasInTime))
  let locked = new Set<bigint>()
  let isTableLocked = false
  if (checked.size > 0) {
    try {
      locked = await repository.lockedAmong([...checked].map(({ petId }) => petId))
      // If no row is locked, the whole table is, or the lock was released just now.
      isTableLocked = locked.size === 0 && checked.size === batch.length
    } catch (error) {
      // The check itself locks only the table.
      isTableLocked = isLocked(error)
    }
  }
  for (const pet of batch) {
    if (locked.has(pet.petId)) pet.waitsFor = 'row lock'
    else if (isTableLocked) pet.waitsFor = 'table lock'
    const mayBeLocked = locked.has(pet.petId) || (!checked.has(pet) && !isTableLocked)
    pet.putBack(mayBeLocked ? 'locked' : 'ready')
  }
}

function retryInBatchesOf(size: number, batch: readonly PendingUpdates[]): void {
  for (const pet of batch) {
    pet.batchLimit = size
    pet.putBack('ready')
  }
}

/** Responds to the callers of a pet and returns true, if the statement has decided their updates. */
function settle(pet: PendingUpdates, { entries, unmet, hasRules }: Written): boolean {
  const unmetTag = unmet.get(pet.petId)
  if (unmetTag !== undefined) {
    reject(pet, preconditionFailed(unmetTag))
    return true
  }
  const entry = entries.get(pet.petId)
  const { written } = pet
  if (entry === undefined || written === undefined) return false
  for (const update of pet.inFlight) {
    // The caller of a superseded update gets its own quantity, as if the update had been stored and replaced at once. With
    // triggers or rules, which might have changed the quantity, each caller gets the entry as stored.
    const isOwn = update !== written && !hasRules
    update.resolve(isOwn ? { ...entry, quantity: update.quantity } : entry)
  }
  pet.finish()
  return true
}

/** Finds out why PostgreSQL returned no row for these pets, and decides their updates or has them retried. */
async function decide(
  repository: UpdateRepository,
  pets: readonly PendingUpdates[],
  hasInTime: (pet: PendingUpdates) => boolean,
): Promise<void> {
  // Once for each pet, because its time may run out between two calls.
  const inTime = pets.filter(hasInTime)
  for (const pet of pets) if (!inTime.includes(pet)) pet.putBack('ready')
  if (inTime.length === 0) return
  let existing: Set<bigint>
  try {
    existing = await repository.existingAmong(inTime.map(({ petId }) => petId))
  } catch (error) {
    for (const pet of inTime) reject(pet, error)
    return
  }
  for (const pet of inTime) {
    if (!existing.has(pet.petId)) {
      for (const { resolve } of pet.inFlight) resolve(undefined)
      pet.finish()
    } else if (pet.wasPassedOver) {
      isolate(pet, ruleViolation())
    } else {
      pet.wasPassedOver = true
      pet.putBack('ready')
    }
  }
}

/**
 * Rejects the update in flight of a pet whose quantity PostgreSQL does not accept. If it has superseded others, has the older half
 * retried first, because only the quantity of the newest one was tried.
 */
function isolate(pet: PendingUpdates, error: unknown): void {
  const { length } = pet.inFlight
  if (length === 1) {
    reject(pet, error)
    return
  }
  pet.updateLimit = Math.ceil(length / 2)
  retryInBatchesOf(1, [pet])
}

function reject(pet: PendingUpdates, error: unknown): void {
  for (const update of pet.inFlight) update.reject(error)
  pet.finish()
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
