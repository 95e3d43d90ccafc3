import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { joinReads } from '../../src/inventory/join-reads.ts'

t.test('one read serves all who ask before it begins, and none who ask after', async (t) => {
  let begun = 0
  const finish: (() => void)[] = []
  const read = joinReads(() => {
    const number = ++begun
    return new Promise<number>((resolve) => finish.push(() => resolve(number)))
  })
  const first = [read(), read(), read()]
  await setTimeout(10)
  t.equal(begun, 1)
  const second = [read(), read()]
  await setTimeout(10)
  t.equal(begun, 1, 'the second read waits for the first')
  finish.shift()?.()
  t.strictSame(await Promise.all(first), [1, 1, 1])
  await setTimeout(10)
  t.equal(begun, 2)
  finish.shift()?.()
  t.strictSame(await Promise.all(second), [2, 2])
})

t.test('a read that fails is the affair of those who waited for it', async (t) => {
  let begun = 0
  const read = joinReads(async () => {
    begun++
    if (begun === 1) throw new Error('away')
    return begun
  })
  const failed = read()
  await t.rejects(failed, { message: 'away' })
  t.equal(await read(), 2)
})
