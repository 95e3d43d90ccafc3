/** Minimum deletions before the entries move to a new `Map`. If there are more entries, it takes as many deletions. */
const MIN_DELETIONS = 256

/**
 * A `Map` for entries that are added and removed with each request. After some deletions, the entries move to a new `Map`.
 *
 * V8 replaces the table of a `Map` or `Set` when it is full or nearly empty, and the old table refers to the new one. Once
 * one of them has been promoted to V8's old generation, all that follow are promoted as well, with everything that their
 * entries refer to, and only a full garbage collection frees them. A new `Map` ends this chain.
 */
export class TransientMap<Key, Value> implements Iterable<[Key, Value]> {
  #entries = new Map<Key, Value>()
  #deletions = 0

  get size(): number {
    return this.#entries.size
  }

  has(key: Key): boolean {
    return this.#entries.has(key)
  }

  get(key: Key): Value | undefined {
    return this.#entries.get(key)
  }

  /** Adds an entry as the last one, or changes the value of an existing one. */
  set(key: Key, value: Value): void {
    this.#entries.set(key, value)
  }

  /** Removes an entry, and returns whether it existed. During an iteration, only the entry that is visited may be removed. */
  delete(key: Key): boolean {
    if (!this.#entries.delete(key)) return false
    if (++this.#deletions >= Math.max(MIN_DELETIONS, this.#entries.size)) {
      this.#entries = new Map(this.#entries)
      this.#deletions = 0
    }
    return true
  }

  [Symbol.iterator](): Iterator<[Key, Value]> {
    return this.#entries[Symbol.iterator]()
  }
}
