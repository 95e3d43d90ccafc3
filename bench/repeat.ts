import { type Sample, sampleOf } from './statistics.ts'

/** Measures repeatedly until `seconds` have passed, at least twice; returns the times in milliseconds. */
export async function repeat(seconds: number, take: () => Promise<number>): Promise<Sample> {
  const times: number[] = []
  const end = performance.now() + seconds * 1000
  while (times.length < 2 || performance.now() < end) times.push(await take())
  const taken = times.reduce((sum, time) => sum + time, 0)
  return sampleOf(Float64Array.from(times), taken / 1000, 0)
}
