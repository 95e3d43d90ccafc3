import { ApiError } from '../../contract/api-error.ts'
import { StatementError } from '../../database/statement-error.ts'
import { entryTag, isMet } from '../entry/condition.ts'
import type { Update } from './quantity-update.ts'
import type { StoredEntry, UpdateRepository } from './repository.ts'

/** Updates of different pets for one statement. */
export interface Batch {
  readonly updates: readonly Update[]
  readonly skipsLocked: boolean
  /** The key of updates that are apart and sent for the first time. It has at most one such statement in flight. */
  readonly key?: string
}

/** What a batch has left. */
export interface BatchResult {
  /** The updates to send again: they are not decided, and nothing has changed. */
  readonly undecided: readonly Update[]
  /** Why PostgreSQL did not make the statement, if this may be due to one of its updates. */
  readonly trouble?: 'lock timeout' | 'rejected'
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
 * | Response of PostgreSQL                      | Meaning                           | Next                               |
 * | ------------------------------------------- | --------------------------------- | ---------------------------------- |
 * | the entry as stored                         | committed                         | answered, 200                      |
 * | no row, and there is no entry               | nothing to update                 | answered, 404                      |
 * | no row, and the condition is not met        | nothing changed                   | answered, 412                      |
 * | no row, though the condition is met         | locked, replaced, or skipped      | see `decideUnchanged`              |
 * | ERROR, batch of several                     | nothing changed                   | sent again in quarters             |
 * | lock timeout, single update                 | nothing changed                   | sent again                         |
 * | any other ERROR, single update; read-only   | nothing changed                   | rejected                           |
 * | server                                      |                                   |                                    |
 * | connection lost, FATAL, no answer           | the outcome is unknown            | rejected, never sent again         |
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
    const { outcome, reason } = error instanceof StatementError ? error : {}
    const isRejected = outcome === 'rolledBack' && reason !== 'readOnly'
    if (isRejected && reason === 'lockTimeout') return { undecided: updates, trouble: 'lock timeout' }
    if (isRejected && updates.length > 1) return { undecided: updates, trouble: 'rejected' }
    for (const update of updates) update.reject(error)
    return isRejected ? { undecided: [], trouble: 'rejected' } : { undecided: [] }
  }
  const without: Update[] = []
  for (const update of updates) {
    const row = rows.get(update.petId)
    if (row === undefined) without.push(update)
    else update.resolve(row)
  }
  if (without.length === 0) return { undecided: [] }
  // If this fails, the next statement tells why.
  const entries = await repository.entriesOf(without.map(({ petId }) => petId)).catch(() => undefined)
  const undecided = without.filter((update) => {
    const entry = entries?.get(update.petId)
    if (entry) return !decideUnchanged(update, entry, skipsLocked, repository.table().skippingRules)
    if (entries) update.resolve(undefined)
    return !entries
  })
  return { undecided }
}

/**
 * Decides an update that was not made by the entry that it has left, and returns whether it could. A row that was locked may have been
 * skipped by the statement, and one that was replaced at the same time was not there for it. Otherwise, a trigger has skipped it: if it
 * has the quantity, it is what the update asks for, as with `suppress_redundant_updates_trigger()`. If not, this is certain of a row
 * that was the same before a statement that waits for locked rows.
 */
function decideUnchanged(update: Update, entry: StoredEntry, skipsLocked: boolean, rules: string): boolean {
  const isSame = entry.version !== undefined && entry.version === update.version
  update.version = entry.version
  if (!isMet(update.condition, entry)) {
    const tag = entryTag(entry)
    const message = `The entry's tag is ${tag}, so the precondition failed. Nothing was changed.`
    const headers = { etag: tag, 'cache-control': 'no-store, no-transform' }
    update.reject(new ApiError(412, message, { headers }))
    return true
  }
  if (skipsLocked) return false
  if (entry.quantity === update.quantity) update.resolve(entry)
  else if (isSame) update.reject(new SkippedRowError(rules))
  else return false
  return true
}
