import { ApiError } from '../../contract/api-error.ts'
import { hasCause, wasRolledBack } from '../../database/causes.ts'
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

  constructor(rules: string) {
    super(`no error was raised, but one of these triggers and rules skipped the row: ${rules}`)
  }
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
    // In the same order in all processes, two that update the same pets do not deadlock.
    const inOrder = [...updates].sort((a, b) => (a.petId < b.petId ? -1 : 1))
    rows = await repository.setQuantities(inOrder, skipsLocked)
  } catch (error) {
    const reason = wasRolledBack(error) && !hasCause(error, 'readOnly') ? 'refusal' : undefined
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
    else if (!decideUnchanged(update, row))
      update.reject(new SkippedRowError(repository.table().skippingRules))
  }
  if (without.length === 0) return { undecided: [] }
  // If this fails, the next statement tells why.
  const entries = await repository.entriesOf(without.map(({ petId }) => petId)).catch(() => undefined)
  const undecided = without.filter((update) => {
    const entry = entries?.get(update.petId)
    // For a row that was locked, no trigger has run.
    if (entry) return (skipsLocked && isMet(update.condition, entry)) || !decideUnchanged(update, entry)
    if (entries) update.resolve(undefined)
    return !entries
  })
  return { undecided, reason: 'no row' }
}

/**
 * Decides an update that was not made by the entry that it has left. An entry with the quantity is what the update asks for: a trigger
 * such as `suppress_redundant_updates_trigger()` may have skipped it. Returns whether it is decided.
 */
function decideUnchanged(update: Update, entry: InventoryItem): boolean {
  if (!isMet(update.condition, entry))
    update.reject(
      new ApiError(412, `The entry's tag is ${entryTag(entry)}, so the precondition failed. Nothing was changed.`, {
        etag: entryTag(entry),
        'cache-control': 'no-store, no-transform',
      }),
    )
  else if (entry.quantity === update.quantity) update.resolve(entry)
  else return false
  return true
}
