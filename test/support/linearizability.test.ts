import fc from 'fast-check'
import t from 'tap'
import { findContradiction, type Operation } from './linearizability.ts'

const NEVER = Number.POSITIVE_INFINITY

const update = (quantity: number, began: number, ended: number, expected?: number): Operation => {
  return { kind: 'update', quantity, expected, began, ended }
}
const read = (quantity: number, began: number, ended: number): Operation => {
  return { kind: 'read', quantity, began, ended }
}

t.test('histories that need no search are refused', async (t) => {
  t.match(findContradiction([update(1, 1, 2), read(2, 3, 4)], 0), '2 was read and never set')
  t.match(findContradiction([update(1, 1, 2, 7)], 0), '7 was expected by an update and never set')
})

t.test('agrees with a search through all orders', async (t) => {
  const numRuns = 5000
  let possible = 0
  const property = fc.property(fc.gen(), (generate) => {
    const history = randomHistory(generate)
    const exists = hasLegalOrder(history, 0)
    if (exists) possible++
    return (findContradiction(history, 0) === undefined) === exists
  })
  fc.assert(property, { seed: 20261121, numRuns })
  t.ok(possible > numRuns / 10 && possible < (numRuns * 9) / 10, `${possible} of ${numRuns} were possible`)
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
function randomHistory(generate: fc.GeneratorValue): Operation[] {
  const random = (below: number): number => generate(fc.integer, { min: 0, max: below - 1 })
  const updates = random(4)
  const count = updates + 1 + random(3)
  const places = generate(fc.shuffledSubarray, [...Array(count * 2).keys()], { minLength: count * 2 })
  return Array.from({ length: count }, (_, index) => {
    const [began = 0, ended = 0] = places.slice(index * 2, index * 2 + 2).sort((a, b) => a - b)
    if (index >= updates) return read(random(updates + 1), began, ended)
    const end = random(4) === 0 ? NEVER : ended
    return update(index + 1, began, end, random(3) === 0 ? random(updates + 1) : undefined)
  })
}
