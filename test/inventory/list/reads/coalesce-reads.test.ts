import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { coalesceReads } from '../../../../src/inventory/list/reads/coalesce-reads.ts'
import { until } from '../../../support/eventually.ts'

t.test('one read serves all callers that ask before it begins, and none that ask after', async (t) => {
  let begun = 0
  const finish: (() => void)[] = []
  const read = coalesceReads(() => {
    const number = ++begun
    return new Promise<number>((resolve) => finish.push(() => resolve(number)))
  })
  const first = [read(), read(), read()]
  await until('the first read', () => begun >= 1)
  const second = [read(), read()]
  await setTimeout(10)
  t.equal(begun, 1, 'the second read waits for the first')
  finish.shift()?.()
  t.strictSame(await Promise.all(first), [1, 1, 1])
  await until('the second read', () => begun >= 2)
  finish.shift()?.()
  t.strictSame(await Promise.all(second), [2, 2])
})

t.test('a failed read fails for its callers, and for none that ask later', async (t) => {
  let begun = 0
  const fail: (() => void)[] = []
  const read = coalesceReads(() => {
    const number = ++begun
    return number === 1
      ? new Promise<number>((_, reject) => fail.push(() => reject(new Error('away'))))
      : Promise.resolve(number)
  })
  const first = read()
  await until('the first read', () => begun >= 1)
  const behind = read()
  fail[0]?.()
  await t.rejects(first, { message: 'away' })
  await t.rejects(behind, { message: 'away' })
  t.equal(begun, 1)
  t.equal(await read(), 2)
})
