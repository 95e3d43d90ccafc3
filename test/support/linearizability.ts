/** One thing that a client did with one pet, seen from outside. */
export interface Operation {
  readonly kind: 'update' | 'read'
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
  /** The quantity that must come right before this one. */
  readonly expected: number | undefined
  readonly setFrom: number
  /** The first answer: by then it was set. Infinite where nothing shows that it ever was. */
  firstEnd: number
  /** The last request: it is what was set then, or is to be set still. */
  lastBegin: number
}

/**
 * Says what makes the history of one pet impossible; undefined where a legal order exists: each operation takes effect
 * at one moment between its request and its answer, and a read sees the update before it (linearizability).
 *
 * Each quantity is set once, so it is known which update a read has seen, and one group has to come before another if it was set
 * before the last request of the other. Groups of updates that compare and set are one chain, without others in between.
 * A legal order exists if and only if no two chains have to come before each other, and none has to come before itself
 * (P. B. Gibbons, E. Korach: Testing Shared Memories. SIAM Journal on Computing 26(4), 1997).
 */
export function findContradiction(history: readonly Operation[], initial: number): string | undefined {
  const before = Number.NEGATIVE_INFINITY
  const first: Operation = { kind: 'update', quantity: initial, began: before, ended: before }
  const groups = new Map<number, Group>()
  for (const { kind, quantity, expected, began, ended } of [first, ...history]) {
    if (kind === 'update')
      groups.set(quantity, { quantity, expected, setFrom: began, firstEnd: ended, lastBegin: began })
  }
  for (const { kind, quantity, began, ended } of history) {
    if (kind === 'update') continue
    const group = groups.get(quantity)
    if (group === undefined) return `${quantity} was read and never set`
    if (ended < group.setFrom) return `${quantity} was read before it was set`
    group.firstEnd = Math.min(group.firstEnd, ended)
    group.lastBegin = Math.max(group.lastBegin, began)
  }
  const chains = findChains(groups)
  if (typeof chains === 'string') return chains
  for (const [index, chain] of chains.entries()) {
    const isBroken = chain.some((group, at) => precedes([group], chain.slice(0, at)))
    const others = chains.slice(index + 1)
    const other = isBroken ? chain : others.find((it) => precedes(chain, it) && precedes(it, chain))
    if (other !== undefined)
      return `${listQuantities(chain)} was still there, or there again, when it had been replaced by ${listQuantities(other)}`
  }
  return undefined
}

/** Puts each update that was made and expected a quantity behind the one that set it; says why that is impossible. */
function findChains(groups: ReadonlyMap<number, Group>): Group[][] | string {
  // What was expected by an update that was made was made, too.
  for (let { expected, firstEnd } of groups.values()) {
    while (expected !== undefined && firstEnd < Number.POSITIVE_INFINITY) {
      const former = groups.get(expected)
      if (former === undefined) return `${expected} was expected by an update and never set`
      expected = firstEnd < former.firstEnd ? former.expected : undefined
      former.firstEnd = Math.min(former.firstEnd, firstEnd)
    }
  }
  const made = [...groups.values()].filter(({ firstEnd }) => firstEnd < Number.POSITIVE_INFINITY)
  const successors = new Map(made.map((group) => [group.expected, group]))
  const chains = made
    .filter(({ expected }) => expected === undefined)
    .map((group) => {
      const chain: Group[] = []
      for (let next: Group | undefined = group; next; next = successors.get(next.quantity)) chain.push(next)
      return chain
    })
  return chains.flat().length === made.length ? chains : 'two updates replaced one quantity, or each other'
}

/** Whether one chain has to come before another. */
function precedes(one: readonly Group[], other: readonly Group[]): boolean {
  const firstEnd = Math.min(...one.map(({ firstEnd }) => firstEnd))
  return other.some(({ lastBegin }) => firstEnd < lastBegin)
}

const listQuantities = (chain: readonly Group[]) => chain.map(({ quantity }) => quantity).join(', then ')
