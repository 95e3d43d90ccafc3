import { setFlagsFromString } from 'node:v8'
import t from 'tap'
import { disablePretenuring } from '../../src/process/garbage-collection.ts'

t.test('new objects are young, even if all earlier ones of the same line are still in use', async (t) => {
  disablePretenuring()
  setFlagsFromString('--allow-natives-syntax')
  const isYoung = new Function('object', 'return %InYoungGeneration(object)')
  // V8 decides about each function on its own, and not about each one in time.
  for (let attempt = 0; attempt < 5; attempt++) {
    const make = new Function('i', 'return { id: i, list: [i, i + 1, i + 2] }')
    const kept: unknown[] = []
    let old = 0
    for (let i = 0; i < 300_000; i++) {
      kept.push(make(i))
      if (i % 100 === 0 && !isYoung(make(i).list)) old++
    }
    t.equal(old, 0)
  }
})
