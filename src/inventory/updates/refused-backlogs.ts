import { Backlog, type Lane, type PendingUpdates } from './pending-updates.ts'

/**
 * A refused statement is split into this many parts, and the limit of a key grows by the same factor. With one bad update among
 * 500, that takes 25 statements, and if all are bad, 572: halves take 19 and 1,023.
 */
const PARTS = 8

/** A key whose limit has grown to this is not limited any more. */
const UNLIMITED = 500

/**
 * Makes the oldest updates of at most `limit` pets the ones in flight, for one statement, and returns these pets, which leave the
 * lane.
 */
export function takeFrom(lane: Lane, limit: number): PendingUpdates[] {
  const pets: PendingUpdates[] = []
  let size = limit
  for (const pet of lane.keys()) {
    size = Math.min(size, pet.maxBatchSize)
    if (pets.length >= size) break
    pet.take()
    pets.push(pet)
  }
  return pets
}

/**
 * The backlogs of API keys with updates that PostgreSQL has refused, because of a constraint or a trigger of the operator. A key
 * has one from the first refusal of its updates alone until it has none left and statements with several succeed, so that its
 * updates neither fail the batches of other keys nor wait in front of their updates.
 */
export class RefusedBacklogs {
  /** By key, the one that was served longest ago first. */
  readonly #backlogs = new Map<string, Backlog>()
  readonly #main: Backlog

  constructor(main: Backlog) {
    this.#main = main
  }

  [Symbol.iterator](): Iterator<Backlog> {
    return this.#backlogs.values()
  }

  /** Returns the backlog for an update. It is the same for all updates of a pet by one key, which therefore stay in order. */
  of(petId: bigint, key: string): Backlog {
    const own = this.#backlogs.get(key)
    if (own === undefined) return this.#main
    const isLimited = own.limit < Number.POSITIVE_INFINITY && !this.#main.pets.get(petId)?.has(key)
    return isLimited || own.pets.has(petId) ? own : this.#main
  }

  /** Takes the updates of the next statement, all of one key. Returns no pets if none is waiting. */
  take(): PendingUpdates[] {
    for (const [key, backlog] of this.#backlogs) {
      const pets = takeFrom(backlog.ready, backlog.limit)
      const isNeeded = backlog.pets.size > 0 || backlog.limit < Number.POSITIVE_INFINITY
      if (pets.length > 0 || !isNeeded) this.#backlogs.delete(key)
      if (pets.length === 0) continue
      this.#backlogs.set(key, backlog)
      return pets
    }
    return []
  }

  /**
   * Puts the updates in flight of these pets back into the backlogs of their keys, after PostgreSQL has refused the statement, to
   * be sent in smaller ones. A single one is left to the caller.
   */
  onRefused(pets: readonly PendingUpdates[]): void {
    const limit = Math.ceil(pets.length / PARTS)
    const key = onlyKey(pets)
    if (key !== undefined) this.#own(key).limit = limit
    if (pets.length === 1) return
    for (const pet of pets) pet.moveTo(this.#own(pet.key), limit)
  }

  /** Records that PostgreSQL has executed a statement with the updates in flight of these pets. */
  onExecuted(pets: readonly PendingUpdates[]): void {
    const key = this.#backlogs.size === 0 ? undefined : onlyKey(pets)
    const backlog = key === undefined ? undefined : this.#backlogs.get(key)
    if (backlog === undefined) return
    const limit = backlog.limit * PARTS
    backlog.limit = limit < UNLIMITED ? limit : Number.POSITIVE_INFINITY
  }

  #own(key: string): Backlog {
    const backlog = this.#backlogs.get(key) ?? new Backlog(this.#main.statistics, this.#main.locked)
    this.#backlogs.set(key, backlog)
    return backlog
  }
}

/** Returns the name of the key that has made all updates in flight; undefined if there are several. */
function onlyKey([first, ...others]: readonly PendingUpdates[]): string | undefined {
  return others.every(({ key }) => key === first?.key) ? first?.key : undefined
}
