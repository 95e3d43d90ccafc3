import { ApiError } from '../../contract/api-error.ts'
import { entryTag, isMet } from '../entry/condition.ts'
import type { InventoryItem } from '../entry/schemas.ts'
import type { Batch } from './pending-updates.ts'
import type { Update } from './quantity-update.ts'
import type { StoredEntry, UpdateRepository } from './repository.ts'

/** A trigger of the operator's own has skipped the row. */
export class SkippedRowError extends Error {
  override readonly name = 'SkippedRowError'

  constructor() {
    super('no error was raised, but a trigger skipped the row')
  }
}

/** Answers the updates of a committed statement, and returns those without an outcome. `made` has the entries of those that it made. */
export async function settleMade(
  repository: UpdateRepository,
  { updates, skipsLocked }: Batch,
  made: ReadonlyMap<bigint, InventoryItem>,
): Promise<readonly Update[]> {
  const others: Update[] = []
  for (const update of updates) {
    const entry = made.get(update.petId)
    if (entry === undefined) others.push(update)
    else update.resolve(entry)
  }
  if (others.length === 0) return []
  // If this fails, the next statement tells why.
  const entries = await repository.findEntries(others.map(({ petId }) => petId)).catch(() => undefined)
  if (entries === undefined) return others
  return others.filter((update) => !settleUnmade(update, entries.get(update.petId), skipsLocked))
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
  else if (isSame) update.reject(new SkippedRowError())
  else return false
  return true
}
