import t from 'tap'
import { contradictionIn, type Operation } from './linearizability.ts'
import { randomOf } from './random.ts'

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

t.test('histories that need no search are refused', async (t) => {
  const histories: Record<string, Operation[]> = {
    'a quantity that nobody set': [update(1, 1, 2), read(2, 3, 4)],
    'a quantity set in the place of one that nobody set': [swap(7, 1, 1, 2)],
    'a refusal while the expected quantity is there': [update(1, 1, 2), refused(1, 3, 4), read(1, 5, 6)],
  }
  for (const [title, history] of Object.entries(histories))
    t.type(contradictionIn(history, 0), 'string', title)
})

t.test('agrees with a search through all orders', async (t) => {
  const random = randomOf(20261121)
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
