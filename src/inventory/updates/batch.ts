import { ApiError } from '../../contract/api-error.ts'
import { hasCause, mayConcernOneRow } from '../../database/causes.ts'
import { entryTag, isMet } from '../entry/condition.ts'
import type { InventoryItem } from '../entry/schemas.ts'
import type { QueuedState, Update } from './quantity-update.ts'
import type { UpdateRepository } from './repository.ts'

/** Updates of different pets for one statement. */
export interface Batch {
  /** The state in which its updates were queued. */
  readonly state: QueuedState
  readonly updates: readonly Update[]
  readonly skipsLocked: boolean
}

/** What a batch has left. */
export interface BatchResult {
  /** The updates to send again: they are not decided, and nothing has changed. */
  readonly undecided: readonly Update[]
  /**
   * Why they are not decided: the statement has waited for a lock for too long; the row was locked, or replaced at the same time;
   * or PostgreSQL has refused the statement, which a single update may have caused, and which is then rejected.
   */
  readonly reason?: 'lock timeout' | 'no row' | 'refusal' | undefined
}

/** A trigger or a rule of the operator's own has skipped the row. */
export class SkippedRowError extends Error {
  override readonly name = 'SkippedRowError'
}

/**
 * Sends a batch and decides what happens to its updates:
 *
 * | Response of PostgreSQL                       | Meaning                           | Next                              |
 * | -------------------------------------------- | --------------------------------- | --------------------------------- |
 * | the entry as stored                          | committed                         | answered, 200                     |
 * | the entry, locked but unchanged              | condition not met, or skipped by  | answered, 412, 400, or 200 if it  |
 * |                                              | a trigger                         | has the quantity                  |
 * | no row, and there is no entry                | nothing to update                 | answered, 404                     |
 * | no row, and the condition is not met         | nothing changed                   | answered, 412                     |
 * | no row, though the condition is met          | locked, replaced, or skipped      | sent again as locked              |
 * | lock timeout (55P03)                         | nothing changed                   | sent again                        |
 * | any other ERROR, batch of several            | nothing changed                   | sent again in halves              |
 * | any other ERROR, single update; read-only    | nothing changed                   | rejected                          |
 * | server                                       |                                   |                                   |
 * | connection lost, FATAL, no answer            | the outcome is unknown            | rejected, never sent again        |
 */
export async function sendBatch(
  repository: UpdateRepository,
  { updates, skipsLocked }: Batch,
): Promise<BatchResult> {
  let rows: Awaited<ReturnType<UpdateRepository['setQuantities']>>
  try {
    rows = await repository.setQuantities(inOrder(updates), skipsLocked)
  } catch (error) {
    const reason = mayConcernOneRow(error) ? 'refusal' : undefined
    if (reason && hasCause(error, 'locked')) return { undecided: updates, reason: 'lock timeout' }
    if (reason && updates.length > 1) return { undecided: updates, reason }
    for (const update of updates) update.reject(error)
    return { undecided: [], reason }
  }
  const without: Update[] = []
  for (const update of updates) {
    const row = rows.get(update.petId)
    if (row === undefined) without.push(update)
    else if (!row.isUnchanged) update.resolve(row)
    else if (!decideUnchanged(update, row)) update.reject(skippedRow(repository.skippingRules()))
  }
  if (without.length === 0) return { undecided: [] }
  return { undecided: await decideWithoutRow(repository, without, skipsLocked), reason: 'no row' }
}

/**
 * Decides an update that was not made by the entry that it has left. An entry with the quantity is what the update asks for: a trigger
 * such as `suppress_redundant_updates_trigger()` may have skipped it. Returns whether it is decided.
 */
function decideUnchanged(update: Update, entry: InventoryItem): boolean {
  if (!isMet(update.condition, entry)) update.reject(preconditionFailed(entry))
  else if (entry.quantity === update.quantity) update.resolve(entry)
  else return false
  return true
}

/** Finds out why PostgreSQL returned no row for these updates, decides them, and returns those to send again. */
async function decideWithoutRow(
  repository: UpdateRepository,
  updates: readonly Update[],
  skipsLocked: boolean,
): Promise<Update[]> {
  let entries: ReadonlyMap<bigint, InventoryItem>
  try {
    entries = await repository.entriesOf(updates.map(({ petId }) => petId))
  } catch (error) {
    for (const update of updates) update.reject(error)
    return []
  }
  const again: Update[] = []
  for (const update of updates) {
    const entry = entries.get(update.petId)
    if (entry === undefined) update.resolve(undefined)
    // For a row that was locked, no trigger has run.
    else if ((skipsLocked && isMet(update.condition, entry)) || !decideUnchanged(update, entry))
      again.push(update)
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

function skippedRow(rules: string): Error {
  return new SkippedRowError(
    `no error was raised, but a trigger BEFORE UPDATE or a rule skipped the row; those of the table: ${rules}`,
  )
}

/** Returns a 412 with the current entity tag of the entry. */
function preconditionFailed(entry: InventoryItem): ApiError {
  return new ApiError(412, 'The entry does not match If-Match or If-None-Match. Nothing was changed.', {
    etag: entryTag(entry),
    'cache-control': 'no-store, no-transform',
  })
}
