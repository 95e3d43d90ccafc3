import { ApiError } from '../../contract/api-error.ts'
import { StatementError } from '../../database/statement-error.ts'
import { entryTag, isMet } from '../entry/condition.ts'
import type { Batch } from './pending-updates.ts'
import type { Update } from './quantity-update.ts'
import type { MadeUpdates, StoredEntry } from './repository.ts'

/** Answers the updates of a committed statement, those that were made at once, and returns those without an outcome. */
export async function settleMade(
  { updates, skipsLocked }: Batch,
  { entries, others }: MadeUpdates,
): Promise<readonly Update[]> {
  const unmade = updates.filter((update) => {
    const entry = entries.get(update.petId)
    if (entry !== undefined) update.resolve(entry)
    return entry === undefined
  })
  const left = await others
  return unmade.filter((update) => !(left && settleUnmade(update, left.get(update.petId), skipsLocked)))
}

/**
 * Answers an update that was not made by the entry that it has left, and returns whether it could. A row that was locked may have been
 * skipped by the statement, and one that was replaced at the same time was not there for it. If neither is possible, a trigger has
 * skipped it: if it has the quantity, it is what the update asks for, as with `suppress_redundant_updates_trigger()`. If not, this is
 * certain of a row that was the same before a statement that waits for locked rows.
 */
function settleUnmade(update: Update, entry: StoredEntry | undefined, skipsLocked: boolean): boolean {
  const isSame = entry?.version !== undefined && entry.version === update.version
  update.version = entry?.version
  if (entry === undefined) update.resolve(undefined)
  else if (!isMet(update.condition, entry)) {
    const tag = entryTag(entry)
    const message = `The entry's tag is ${tag}, so the precondition failed. Nothing was changed.`
    const headers = { etag: tag, 'cache-control': 'no-store, no-transform' }
    update.reject(new ApiError(412, message, { headers }))
  } else if (skipsLocked) return false
  else if (entry.quantity === update.quantity) update.resolve(entry)
  else if (isSame) update.reject(new StatementError(SKIPPED, 'rolledBack', 'rule'))
  else return false
  return true
}

const SKIPPED = new Error('no error was raised, but a trigger skipped the row')
