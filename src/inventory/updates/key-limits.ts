import { ok as assert } from 'node:assert'
import type { Update } from './quantity-update.ts'

/** Maximum updates in one statement. */
export const MAX_BATCH_SIZE = 500

export const findKey = ({ caller }: Update): string => caller?.key?.name ?? ''

/**
 * The limits of API keys. A key is apart once a statement with its updates had trouble: its updates share statements with one another
 * alone, and one such statement is in flight. Each statement that PostgreSQL rejects leaves it a quarter of the updates in the next one,
 * so that the good ones soon are out, and each success allows it four times as many, until it is no longer apart.
 */
export class KeyLimits {
  /** Maximum updates in the next statement of each key that is apart. */
  readonly #limits = new Map<string, number>()
  readonly #inFlight = new Set<string>()

  /** Whether no key is apart. */
  get areNone(): boolean {
    return this.#limits.size === 0
  }

  isApart(key: string): boolean {
    return this.#limits.has(key)
  }

  /** Whether a key is apart, and none of its statements is in flight. */
  mayBegin(key: string): boolean {
    return this.isApart(key) && !this.#inFlight.has(key)
  }

  /** Begins a statement of a key, and returns the maximum updates in it. */
  begin(key: string): number {
    assert(this.mayBegin(key), 'a key that is apart has one statement in flight')
    this.#inFlight.add(key)
    return this.#limits.get(key) ?? 1
  }

  end(key: string): void {
    assert(this.#inFlight.delete(key), 'only a statement in flight ends')
  }

  /** Sets the keys of a statement that had trouble apart, with at most `limit` updates in their next statements. */
  restrict(updates: readonly Update[], limit: number): void {
    for (const key of new Set(updates.map(findKey)))
      this.#limits.set(key, Math.min(limit, this.#limits.get(key) ?? MAX_BATCH_SIZE))
  }

  /** Allows the keys of a statement without trouble more updates. */
  relax(updates: readonly Update[]): void {
    if (this.areNone) return
    for (const key of new Set(updates.map(findKey))) {
      const limit = (this.#limits.get(key) ?? MAX_BATCH_SIZE) * 4
      if (limit < MAX_BATCH_SIZE) this.#limits.set(key, limit)
      else this.#limits.delete(key)
    }
  }
}
