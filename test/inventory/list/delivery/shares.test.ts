import t from 'tap'
import { inShares } from '../../../../src/inventory/list/delivery/shares.ts'

const kib = (count: number, content = 'x'): Buffer => Buffer.alloc(count * 1024, content)

/** Reads the chunks as fast as they come, and returns how many KiB came in each event-loop iteration. */
async function readByIteration(chunks: readonly Buffer[], downloads: () => number): Promise<number[]> {
  const read: number[] = [0]
  let isReading = true
  const countIterations = (): void => {
    if (!isReading) return
    read.push(0)
    setImmediate(countIterations)
  }
  setImmediate(countIterations)
  for await (const chunk of inShares(chunks, downloads)) {
    read.push((read.pop() ?? 0) + chunk.length / 1024)
  }
  isReading = false
  return read
}

t.test('a download gets at most 1 MiB per event-loop iteration, however the list is divided', async (t) => {
  t.strictSame(await readByIteration([kib(2560)], () => 1), [1024, 1024, 512])
  t.strictSame(await readByIteration([kib(1000), kib(1000), kib(560)], () => 1), [1024, 1024, 512])
  const pieces = Array.from({ length: 20 }, () => kib(128))
  t.strictSame(await readByIteration(pieces, () => 1), [1024, 1024, 512])
})

t.test('concurrent downloads divide the bytes of an iteration, down to 64 KiB each', async (t) => {
  t.strictSame(await readByIteration([kib(1024)], () => 4), [256, 256, 256, 256])
  t.strictSame(await readByIteration([kib(160)], () => 1000), [64, 64, 32])
  const counts = [1, 4, 2]
  t.strictSame(await readByIteration([kib(1800)], () => counts.shift() ?? 0), [1024, 256, 512, 8])
})

t.test('the shares together are the list', async (t) => {
  const chunks = [kib(700, 'a'), kib(0), kib(2000, 'b'), kib(1, 'c')]
  const shares: Buffer[] = []
  for await (const share of inShares(chunks, () => 3)) shares.push(share)
  t.ok(Buffer.concat(shares).equals(Buffer.concat(chunks)))
})
