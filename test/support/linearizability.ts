/** One thing that a client did with one pet, seen from outside. */
export interface Operation {
  /** A refused update is one whose expected quantity was not there. */
  readonly kind: 'update' | 'refused update' | 'read'
  /** What was set or seen. No two updates of a history set the same quantity, and none sets the initial one. */
  readonly quantity: number
  /** What the pet had to have for the update; absent where it was made in any case. */
  readonly expected?: number | undefined
  /** The place of the request among all events of the history; no two events have the same. */
  readonly began: number
  /** The place of the answer; infinite where none came, so that the update may have happened at any time, or never. */
  readonly ended: number
}

/** An update with all reads that saw it. They are adjacent in every legal order. */
interface Group {
  readonly quantity: number
  readonly setFrom: number
  /** The quantity that must come right before this one. */
  readonly expected: number | undefined
  isCertain: boolean
  /** The first answer: by then it was set. */
  firstEnd: number
  /** The last request: it is what was set then, or is to be set still. */
  lastBegin: number
}

/**
 * Says what makes the history of one pet impossible; undefined where a legal order exists: each operation takes effect
 * at one moment between its request and its answer, and a read sees the update before it (linearizability).
 *
 * Each quantity is set once, so it is known which update a read has seen. An update that compares and sets comes right
 * after the group of the quantity that it expects, so that both make one group. Where a group's first answer came before
 * its last request, the pet had those quantities from the one to the other; elsewhere it needs a single moment between the
 * two. A legal order exists if and only if no two such times overlap and each moment finds a place outside of them
 * (P. B. Gibbons, E. Korach: Testing Shared Memories. SIAM Journal on Computing 26(4), 1997).
 *
 * A refused update is impossible if the pet had the quantity that it expected for all of its time; whether two of them
 * exclude each other is not looked at.
 */
export function contradictionIn(history: readonly Operation[], initial: number): string | undefined {
  const before = Number.NEGATIVE_INFINITY
  const groups = new Map<number, Group>([
    [
      initial,
      {
        quantity: initial,
        setFrom: before,
        expected: undefined,
        isCertain: true,
        firstEnd: before,
        lastBegin: before,
      },
    ],
  ])
  for (const { kind, quantity, expected, began, ended } of history) {
    if (kind !== 'update') continue
    const isCertain = ended !== Number.POSITIVE_INFINITY
    groups.set(quantity, { quantity, setFrom: began, expected, isCertain, firstEnd: ended, lastBegin: began })
  }
  for (const { kind, quantity, began, ended } of history) {
    if (kind !== 'read') continue
    const group = groups.get(quantity)
    if (group === undefined) return `${quantity} was read and never set`
    if (ended < group.setFrom) return `${quantity} was read before it was set`
    group.isCertain = true
    group.firstEnd = Math.min(group.firstEnd, ended)
    group.lastBegin = Math.max(group.lastBegin, began)
  }
  const refused = refusedContradiction(history, groups)
  if (refused !== undefined) return refused
  const joined = joinGroups(groups)
  if (typeof joined === 'string') return joined

  const lasting = joined
    .filter(({ firstEnd, lastBegin }) => firstEnd < lastBegin)
    .sort((a, b) => a.firstEnd - b.firstEnd)
  for (const [index, { quantity, firstEnd }] of lasting.entries()) {
    const previous = lasting[index - 1]
    if (previous !== undefined && firstEnd < previous.lastBegin)
      return `${previous.quantity} was still there, or there again, when it had been replaced by ${quantity}`
  }
  for (const { quantity, firstEnd, lastBegin } of joined) {
    const other = lasting.find((group) => group.firstEnd < lastBegin && firstEnd < group.lastBegin)
    if (other !== undefined && firstEnd >= lastBegin)
      return `${other.quantity} was still there, or there again, when it had been replaced by ${quantity}`
  }
  return undefined
}

function refusedContradiction(
  history: readonly Operation[],
  groups: ReadonlyMap<number, Group>,
): string | undefined {
  for (const { kind, expected, began, ended } of history) {
    if (kind !== 'refused update' || expected === undefined) continue
    const group = groups.get(expected)
    if (group !== undefined && group.firstEnd < began && ended < group.lastBegin)
      return `an update that expected ${expected} was refused while it was there`
  }
  return undefined
}

/** Makes one group of each quantity and those that were set in its place; says why that is impossible. */
function joinGroups(groups: ReadonlyMap<number, Group>): Group[] | string {
  const successors = new Map<number, Group>()
  const starts: Group[] = []
  // An update that is uncertain has happened if its quantity was expected by one that has.
  for (let changed = true; changed; ) {
    changed = false
    for (const { isCertain, expected } of groups.values()) {
      const predecessor = expected === undefined ? undefined : groups.get(expected)
      if (!isCertain || predecessor === undefined || predecessor.isCertain) continue
      predecessor.isCertain = true
      changed = true
    }
  }
  for (const group of groups.values()) {
    const { expected, quantity, isCertain } = group
    if (expected === undefined) {
      starts.push(group)
    } else if (isCertain) {
      if (!groups.has(expected)) return `${quantity} was set in the place of ${expected}, which was never set`
      if (successors.has(expected)) return `${expected} was replaced twice`
      successors.set(expected, group)
    }
  }
  const joined: Group[] = []
  let count = 0
  for (const start of starts) {
    let whole = { ...start }
    for (let next = successors.get(start.quantity); next; next = successors.get(next.quantity)) {
      if (next.firstEnd < whole.lastBegin)
        return `${next.expected} was still there, or there again, when it had been replaced by ${next.quantity}`
      whole = {
        ...whole,
        firstEnd: Math.min(whole.firstEnd, next.firstEnd),
        lastBegin: Math.max(whole.lastBegin, next.lastBegin),
      }
      count++
    }
    joined.push(whole)
  }
  return count === successors.size ? joined : 'updates expect each other'
}
