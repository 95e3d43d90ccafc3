import t from 'tap'
import { contradictionIn, type Operation } from './linearizability.ts'
import { randomOf } from './random.ts'

const NEVER = Number.POSITIVE_INFINITY

const update = (quantity: number, began: number, ended: number, expected?: number): Operation => ({
  kind: 'update',
  quantity,
  expected,
  began,
  ended,
})
const read = (quantity: number, began: number, ended: number): Operation => ({
  ...update(quantity, began, ended),
  kind: 'read',
})

t.test('histories that need no search are refused', async (t) => {
  t.match(contradictionIn([update(1, 1, 2), read(2, 3, 4)], 0), '2 was read and never set')
  t.match(contradictionIn([update(1, 1, 2, 7)], 0), '7 was expected by an update and never set')
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
    if ((contradictionIn(history, 0) === undefined) !== exists) disputed.push(history)
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
    if (index >= updates) return read(random(updates + 1), began, ended)
    const end = random(4) === 0 ? NEVER : ended
    return update(index + 1, began, end, random(3) === 0 ? random(updates + 1) : undefined)
  })
}
