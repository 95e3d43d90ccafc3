import t from 'tap'
import { contradictionIn, type Operation } from './linearizability.ts'

const NEVER = Number.POSITIVE_INFINITY

const update = (quantity: number, began: number, ended: number): Operation => ({
  kind: 'update',
  quantity,
  began,
  ended,
})
const read = (quantity: number, began: number, ended: number): Operation => ({
  kind: 'read',
  quantity,
  began,
  ended,
})

const swap = (expected: number, quantity: number, began: number, ended: number): Operation => ({
  ...update(quantity, began, ended),
  expected,
})
const refused = (expected: number, began: number, ended: number): Operation => ({
  kind: 'refused update',
  quantity: -1,
  expected,
  began,
  ended,
})

t.test('linearizable histories are accepted', async (t) => {
  const histories: Record<string, Operation[]> = {
    nothing: [],
    'a read of the first quantity': [read(0, 1, 2)],
    'an update and a read of it': [update(1, 1, 2), read(1, 3, 4)],
    'either quantity while an update is under way': [update(1, 1, 6), read(0, 2, 3), read(1, 4, 5)],
    'two updates at once, in either order': [update(1, 1, 3), update(2, 2, 4), read(1, 5, 6)],
    'an update without an answer that happened': [update(1, 1, NEVER), read(0, 2, 3), read(1, 4, 5)],
    'one that never did': [update(1, 1, NEVER), update(2, 2, 3), read(2, 4, 5)],
    'one quantity in the place of another': [swap(0, 1, 1, 2), swap(1, 2, 3, 4), read(2, 5, 6)],
    'one in the place of another that has no answer': [swap(0, 1, 1, NEVER), swap(1, 2, 3, 4)],
    'one that has no answer and did not happen': [swap(0, 1, 1, NEVER), swap(0, 2, 3, 4), read(2, 5, 6)],
    'a refusal while another update is under way': [update(1, 1, 6), refused(0, 2, 3), read(1, 7, 8)],
    'one that happened late': [update(1, 1, NEVER), update(2, 2, 3), read(2, 4, 5), read(1, 6, 7)],
  }
  for (const [title, history] of Object.entries(histories))
    t.equal(contradictionIn(history, 0), undefined, title)
})

t.test('histories that are not linearizable are refused', async (t) => {
  const histories: Record<string, Operation[]> = {
    'an acknowledged update that is gone': [update(1, 1, 2), read(0, 3, 4)],
    'a lost update': [swap(0, 1, 1, 3), swap(0, 2, 2, 4)],
    'a quantity set in the place of one that was not there': [update(1, 1, 2), swap(0, 2, 3, 4)],
    'a quantity that came between the expected one and its successor': [
      swap(0, 1, 1, 10),
      update(2, 2, 3),
      read(2, 4, 5),
      read(1, 11, 12),
    ],
    'a quantity set in the place of one that nobody set': [swap(7, 1, 1, 2)],
    'a refusal while the expected quantity is there': [update(1, 1, 2), refused(1, 3, 4), read(1, 5, 6)],
    'a quantity that nobody set': [update(1, 1, 2), read(2, 3, 4)],
    'a read from the future': [read(1, 1, 2), update(1, 3, 4)],
    'an update that was seen and is gone': [update(1, 1, NEVER), read(1, 2, 3), read(0, 4, 5)],
    'an update that comes back': [update(1, 1, 2), update(2, 3, 4), read(2, 5, 6), read(1, 7, 8)],
    'a list that lags behind the one before it': [update(1, 1, 6), read(1, 2, 3), read(0, 4, 5)],
    'two reads that saw two updates in different orders': [
      update(1, 1, 20),
      update(2, 2, 21),
      read(1, 3, 4),
      read(2, 5, 6),
      read(1, 7, 8),
    ],
  }
  for (const [title, history] of Object.entries(histories))
    t.type(contradictionIn(history, 0), 'string', title)
})

t.test('agrees with a search through all orders', async (t) => {
  const random = generator(20261121)
  const rounds = 5000
  const disputed: Operation[][] = []
  let possible = 0
  for (let round = 0; round < rounds; round++) {
    const history = randomHistory(random)
    const exists = hasLegalOrder(history, 0)
    if (exists) possible++
    const isFound = contradictionIn(history, 0) !== undefined
    // Not every contradiction of refused updates is looked for; none is found where there is none.
    const isExact = history.every(({ kind }) => kind !== 'refused update')
    if (isFound === exists && (isExact || isFound)) disputed.push(history)
  }
  t.strictSame(disputed.slice(0, 1), [])
  t.ok(possible > rounds / 10 && possible < (rounds * 9) / 10, `${possible} of ${rounds} were possible`)
})

/** The definition, word by word: what may come first, and whether the rest has a legal order after it. */
function hasLegalOrder(history: readonly Operation[], quantity: number): boolean {
  if (history.every(({ ended }) => ended === NEVER)) return true
  const firstEnd = Math.min(...history.map(({ ended }) => ended))
  return history.some((operation) => {
    if (operation.began > firstEnd) return false
    if (operation.kind === 'read' && operation.quantity !== quantity) return false
    const others = history.filter((other) => other !== operation)
    if (operation.kind === 'refused update')
      return operation.expected !== quantity && hasLegalOrder(others, quantity)
    if (operation.expected !== undefined && operation.expected !== quantity) return false
    return hasLegalOrder(others, operation.quantity)
  })
}

/** A few operations that overlap by chance; some of the updates have no answer. */
function randomHistory(random: (below: number) => number): Operation[] {
  const updates = random(4)
  const reads = 1 + random(3)
  const count = updates + reads
  const places = Array.from({ length: count * 2 }, (_, place) => ({ place, order: random(1_000_000) }))
    .sort((a, b) => a.order - b.order)
    .map(({ place }) => place)
  return Array.from({ length: count }, (_, index) => {
    const [one = 0, two = 0] = places.slice(index * 2, index * 2 + 2)
    const began = Math.min(one, two)
    const ended = Math.max(one, two)
    if (index >= updates) {
      const seen = random(updates + 1)
      return random(8) === 0 ? refused(seen, began, ended) : read(seen, began, ended)
    }
    const end = random(4) === 0 ? NEVER : ended
    return random(3) === 0 ? swap(random(updates + 1), index + 1, began, end) : update(index + 1, began, end)
  })
}

/** Numbers that are the same in every run (the generator mulberry32 of T. Ettinger). */
function generator(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296) * below)
  }
}
