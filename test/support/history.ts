/** A line of `inventory history --json`. */
export interface RecordedChange {
  readonly petId: number
  readonly oldQuantity: number | null
  readonly newQuantity: number | null
  readonly oldStatus: string | null
  readonly newStatus: string | null
  readonly key: string | null
  readonly keyId: string | null
  readonly role: string
  readonly requestId: string | null
}

/** Parses the output of `inventory history --json`. */
export function changesIn(text: string): RecordedChange[] {
  return text.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line)]))
}

interface Entry {
  readonly quantity: number
  readonly status: string
}

/** Returns where a change, oldest first, does not begin with what the former one of its pet has left, or the last is not the entry. */
export function chainErrors(
  changes: readonly RecordedChange[],
  first: ReadonlyMap<number, Entry>,
  last: ReadonlyMap<number, Entry>,
): string[] {
  const errors: string[] = []
  const entries = new Map(first)
  const textOf = (quantity?: number | null, status?: string | null): string =>
    `${quantity ?? '-'} ${status ?? '-'}`
  for (const change of changes) {
    const former = entries.get(change.petId)
    if (textOf(change.oldQuantity, change.oldStatus) !== textOf(former?.quantity, former?.status))
      errors.push(`${JSON.stringify(change)} after ${JSON.stringify(former)}`)
    if (change.newQuantity === null || change.newStatus === null) entries.delete(change.petId)
    else entries.set(change.petId, { quantity: change.newQuantity, status: change.newStatus })
  }
  for (const petId of new Set([...entries.keys(), ...last.keys()])) {
    const [entry, stored] = [entries.get(petId), last.get(petId)]
    if (textOf(entry?.quantity, entry?.status) !== textOf(stored?.quantity, stored?.status))
      errors.push(`pet ${petId} is ${JSON.stringify(stored)}, not ${JSON.stringify(entry)}`)
  }
  return errors
}
