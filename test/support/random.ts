/** Returns functions that choose at random, in the same way for the same seed (mulberry32). */
export function createRandom(seed: number) {
  let state = seed
  /** Returns a whole number from 0 to below `limit`. */
  const random = (limit: number): number => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * limit)
  }
  const pick = <Item>(items: readonly [Item, ...Item[]]): Item => items[random(items.length)] ?? items[0]
  return { random, pick }
}
