import { ApiError } from '../../contract/errors.ts'
import { hasCause, mayConcernOneRow } from '../../database/error-meaning.ts'
import { isMet } from '../entry/condition.ts'
import type { InventoryItem } from '../entry/schemas.ts'
import type { Update } from './quantity-update.ts'
import type { UpdateRepository } from './repository.ts'

/**
 * How often an update is sent whose statement returns no row, although its entry exists and meets its condition: another
 * transaction may have changed or replaced the entry between the statement and the lookup, or a trigger has skipped the row.
 */
const MAX_ATTEMPTS = 3

/** What a batch has left. */
export interface BatchResult {
  /** The updates to send again: they are not decided, and nothing has changed. */
  readonly undecided: readonly Update[]
  /** The pets whose row another transaction has locked. */
  readonly locked?: ReadonlySet<bigint>
  /** Whether PostgreSQL has refused the statement, which a single update may have caused. */
  readonly isRefused?: boolean
}

/**
 * Sends a batch, of updates of different pets, and decides what happens to them:
 *
 * | Response of PostgreSQL                       | Meaning                           | Next                              |
 * | -------------------------------------------- | --------------------------------- | --------------------------------- |
 * | the entry as stored                          | committed                         | answered, 200                     |
 * | no row, and there is no entry                | nothing to update                 | answered, 404                     |
 * | no row, and the entry does not meet the      | nothing changed                   | answered, 412                     |
 * | condition                                    |                                   |                                   |
 * | no row, though the entry meets the condition | see `MAX_ATTEMPTS`                | sent again, at last answered, 400 |
 * | lock timeout (55P03)                         | nothing changed                   | sent again, those whose row is    |
 * |                                              |                                   | locked individually; if no row    |
 * |                                              |                                   | is, all of them                   |
 * | any other ERROR, batch of several            | nothing changed                   | sent again in halves              |
 * | any other ERROR, single update; read-only    | nothing changed                   | rejected                          |
 * | server                                       |                                   |                                   |
 * | connection lost, FATAL, no answer            | the outcome is unknown            | rejected, never sent again        |
 */
export async function sendBatch(
  repository: UpdateRepository,
  batch: readonly Update[],
): Promise<BatchResult> {
  let entries: ReadonlyMap<bigint, InventoryItem>
  try {
    entries = await repository.setQuantities(inOrder(batch))
  } catch (error) {
    const isRefused = mayConcernOneRow(error)
    if (isRefused && hasCause(error, 'locked'))
      return { undecided: batch, locked: await lockedAmong(repository, batch) }
    if (isRefused && batch.length > 1) return { undecided: batch, isRefused }
    for (const update of batch) update.reject(error)
    return { undecided: [], isRefused }
  }
  const without: Update[] = []
  for (const update of batch) {
    const entry = entries.get(update.petId)
    if (entry === undefined) without.push(update)
    else update.resolve(entry)
  }
  return { undecided: without.length === 0 ? [] : await decideWithoutRow(repository, without) }
}

/**
 * Returns the pets whose row is locked. If none is, the statement has met another lock, such as that of the table or one for which a
 * trigger waits, and all count as locked.
 */
async function lockedAmong(repository: UpdateRepository, batch: readonly Update[]) {
  const petIds = batch.map(({ petId }) => petId)
  // The lookup itself locks only the table.
  const locked = batch.length > 1 && (await repository.lockedAmong(petIds).catch(() => undefined))
  return locked && locked.size > 0 ? locked : new Set(petIds)
}

/** Finds out why PostgreSQL returned no row for these updates, decides them, and returns those to send again. */
async function decideWithoutRow(repository: UpdateRepository, updates: readonly Update[]): Promise<Update[]> {
  let tags: ReadonlyMap<bigint, string>
  try {
    tags = await repository.tagsOf(updates.map(({ petId }) => petId))
  } catch (error) {
    for (const update of updates) update.reject(error)
    return []
  }
  const again: Update[] = []
  for (const update of updates) {
    const tag = tags.get(update.petId)
    update.attempts = (update.attempts ?? 0) + 1
    if (tag === undefined) update.resolve(undefined)
    else if (!isMet(update.condition, tag)) update.reject(preconditionFailed(tag))
    else if (update.attempts >= MAX_ATTEMPTS) update.reject(ruleViolation())
    else again.push(update)
  }
  return again
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
