import type { Test } from 'tap'
import { succeed } from './command.ts'
import type { Exchange } from './load.ts'

/** A line of `inventory history --json`. */
export interface RecordedChange {
  /** Null for a TRUNCATE. */
  readonly petId: number | null
  readonly oldQuantity: number | null
  readonly newQuantity: number | null
  readonly oldStatus: string | null
  readonly newStatus: string | null
  readonly key: string | null
  readonly keyId: string | null
  readonly role: string
  readonly requestId: string | null
}

/** Returns what `inventory history` lists, all or with further options, oldest first. */
export async function readChanges(t: Test, url: string, options = ''): Promise<RecordedChange[]> {
  const text = await succeed(t, url, `history --json ${options}`)
  return text
    .split('\n')
    .flatMap((line) => (line === '' ? [] : [JSON.parse(line)]))
    .reverse()
}

/**
 * Returns where changes, oldest first, are not the history of pets that begin with `0,available` and end as the stock, in lines of
 * CSV; and the updates that are not exactly one of them.
 */
export function errorsIn(
  changes: readonly RecordedChange[],
  pets: readonly number[],
  stock: string,
  updates: readonly Exchange[],
): string[] {
  const errors: string[] = []
  const entries = new Map(pets.map((pet) => [pet, '0,available']))
  const requests = new Map<string | null, RecordedChange[]>()
  for (const change of changes) {
    const { petId, oldQuantity, oldStatus, newQuantity, newStatus, requestId } = change
    if (petId === null) {
      entries.clear()
      continue
    }
    const former = entries.get(petId)
    if (former !== (oldQuantity === null ? undefined : `${oldQuantity},${oldStatus}`))
      errors.push(`${JSON.stringify(change)} after ${former}`)
    if (newQuantity === null) entries.delete(petId)
    else entries.set(petId, `${newQuantity},${newStatus}`)
    const others = requestId === null ? [] : (requests.get(requestId) ?? [])
    requests.set(requestId, [...others, change])
  }
  const last = [...entries].sort(([a], [b]) => a - b).map(([petId, entry]) => `${petId},${entry}`)
  if (last.join('\n') !== stock) errors.push(`${last.join(' ')} is not ${stock}`)
  for (const { id, pet, quantity } of updates) {
    const [change, ...more] = requests.get(id) ?? []
    if (change?.petId !== pet || change?.newQuantity !== quantity || more.length > 0)
      errors.push(`${id}: ${pet} ${quantity} is recorded as ${JSON.stringify([change, ...more])}`)
  }
  return errors
}
