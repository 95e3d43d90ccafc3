/** One thing that a client did with one pet, seen from outside. */
export interface Operation {
  readonly kind: 'update' | 'read'
  /** What was set or seen. No two updates of a history set the same quantity, and none sets the initial one. */
  readonly quantity: number
  /** The place of the request among all events of the history; no two events have the same. */
  readonly began: number
  /** The place of the answer; infinite where none came, so that the update may have happened at any time, or never. */
  readonly ended: number
}

/** An update with all reads that saw it. They are neighbours in every legal order. */
interface Group {
  readonly quantity: number
  readonly setFrom: number
  /** The first answer: by then it was set. */
  firstEnd: number
  /** The last request: it is what was set then, or is to be set still. */
  lastBegin: number
}

/**
 * Says what makes the history of one pet impossible; undefined where a legal order exists: each operation takes effect
 * at one moment between its request and its answer, and a read sees the update before it (linearizability).
 *
 * Each quantity is set once, so it is known which update a read has seen. Where a group's first answer came before its
 * last request, the pet had that quantity from the one to the other; elsewhere it needs a single moment between the two.
 * A legal order exists if and only if no two such times overlap and each moment finds a place outside of them
 * (P. B. Gibbons, E. Korach: Testing Shared Memories. SIAM Journal on Computing 26(4), 1997).
 */
export function contradictionIn(history: readonly Operation[], initial: number): string | undefined {
  const before = Number.NEGATIVE_INFINITY
  const groups = new Map<number, Group>([
    [initial, { quantity: initial, setFrom: before, firstEnd: before, lastBegin: before }],
  ])
  for (const { kind, quantity, began, ended } of history) {
    if (kind === 'update')
      groups.set(quantity, { quantity, setFrom: began, firstEnd: ended, lastBegin: began })
  }
  for (const { kind, quantity, began, ended } of history) {
    if (kind === 'update') continue
    const group = groups.get(quantity)
    if (group === undefined) return `${quantity} was read and never set`
    if (ended < group.setFrom) return `${quantity} was read before it was set`
    group.firstEnd = Math.min(group.firstEnd, ended)
    group.lastBegin = Math.max(group.lastBegin, began)
  }
  const lasting = [...groups.values()]
    .filter(({ firstEnd, lastBegin }) => firstEnd < lastBegin)
    .sort((a, b) => a.firstEnd - b.firstEnd)
  for (const [index, { quantity, firstEnd }] of lasting.entries()) {
    const previous = lasting[index - 1]
    if (previous !== undefined && firstEnd < previous.lastBegin)
      return `${previous.quantity} was still there, or there again, when it had been replaced by ${quantity}`
  }
  for (const { quantity, firstEnd, lastBegin } of groups.values()) {
    const other = lasting.find((group) => group.firstEnd < lastBegin && firstEnd < group.lastBegin)
    if (other !== undefined && firstEnd >= lastBegin)
      return `${other.quantity} was still there, or there again, when it had been replaced by ${quantity}`
  }
  return undefined
}
