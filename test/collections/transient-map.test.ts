import { isDeepStrictEqual } from 'node:util'
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import t from 'tap'
import { TransientMap } from '../../src/collections/transient-map.ts'

t.test('it has the same entries as a Map, in the same order', async () => {
  const step = (keys: number) => fc.record({ isAdded: fc.boolean(), key: fc.nat(keys) })
  const steps = fc.oneof(
    fc.array(step(2)),
    fc.array(step(300), { minLength: 1000, maxLength: 3000, size: 'max' }),
  )
  const isSame = (steps: { isAdded: boolean; key: number }[]): boolean => {
    const map = new TransientMap<number, number>()
    const expected = new Map<number, number>()
    for (const [value, { isAdded, key }] of steps.entries()) {
      if (isAdded) {
        map.set(key, value)
        expected.set(key, value)
      } else if (map.delete(key) !== expected.delete(key)) return false
      if (map.get(key) !== expected.get(key) || map.has(key) !== expected.has(key)) return false
      if (map.size !== expected.size) return false
    }
    return isDeepStrictEqual(
      [[...map], [...map.keys()], [...map.values()]],
      [[...expected], [...expected.keys()], [...expected.values()]],
    )
  }
  fc.assert(fc.property(steps, isSame))
})

t.test('the entry that an iteration visits can be removed', async (t) => {
  const map = new TransientMap<number, string>()
  for (let key = 0; key < 1000; key++) map.set(key, 'value')
  const visited: number[] = []
  for (const [key] of map) {
    visited.push(key)
    map.delete(key)
  }
  t.equal(visited.length, 1000)
  t.equal(map.size, 0)
})

t.test('what was removed does not stay in memory until a full garbage collection', async (t) => {
  setFlagsFromString('--expose-gc')
  const collectAll: unknown = runInNewContext('gc')
  if (typeof collectAll !== 'function') throw new Error('There is no gc()')
  const usedByOld = (): number =>
    getHeapSpaceStatistics().find(({ space_name }) => space_name === 'old_space')?.space_used_size ??
    Number.NaN

  for (const kept of [0, 50]) {
    const map = new TransientMap<number, number[]>()
    for (let key = 0; key < kept; key++) map.set(key, [])
    // Promotes the map to the old generation.
    for (let i = 0; i < 3; i++) collectAll()
    const before = usedByOld()
    for (let key = kept; key < 100_000; key++) {
      map.set(key, new Array<number>(20).fill(key))
      map.delete(key - kept)
    }
    const growth = usedByOld() - before
    t.ok(growth < 2_000_000, `${kept} entries kept: ${growth} bytes`)
  }
})
