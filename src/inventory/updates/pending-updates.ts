import { TransientMap } from '../../collections/transient-map.ts'
import { nothingChanged } from '../../contract/api-error.ts'
import type { InventoryStatistics } from '../statistics.ts'
import type { Batch, BatchResult } from './batch.ts'
import type { Update } from './quantity-update.ts'

/** Maximum updates in one statement. */
const MAX_BATCH_SIZE = 500

/** How long after a lock timeout statements skip locked rows. */
const AFTER_TIMEOUT_MS = 1000

/** A statement that takes longer is slow, unless all are. */
const SLOW_MS = 500

const keyOf = ({ caller }: Update): string => caller?.key?.name ?? ''

/** The states of an update that is to be sent; see `PendingUpdates`. */
export type QueuedState = 'waiting' | 'held' | 'apart'

interface Pet {
  /** The updates that may be sent next, oldest first. */
  queue: Update[]
  /** Whether another update is in flight, or is sent again in a batch. */
  isBusy: boolean
  isHeld: boolean
}

/**
 * All updates without an outcome. Each is in one of these states:
 *
 * - WAITING, at first: it may share a statement with all others that wait.
 * - APART: a statement with its API key had trouble: PostgreSQL rejected it, it waited for a lock, or it was slow. Its updates are sent
 *   again, and further ones of the key for the first time, only with their like: at most a quarter as many after each trouble, so that
 *   the good ones soon are out, and four times as many after each success.
 * - HELD: its pet alone has trouble: a statement did not get its row, or one for no other pet waited for a lock or was slow. The pet's
 *   updates are sent one by one, to wait in PostgreSQL's queue.
 * - IN FLIGHT: it is sent.
 * - SETTLED: its caller has the outcome.
 *
 * The first three follow from the pet and the key, and the pet comes first: an update of a key that is apart whose pet is locked is
 * held until a statement gets the row, and apart again after that. While one update of a pet is in flight, or is sent again in a batch,
 * the others are queued, so none overtakes an older one of its key.
 *
 * After a lock timeout, statements skip locked rows, so that none waits for each newly locked row.
 */
export class PendingUpdates {
  /** Whether each update is a statement of its own. Then it can cause no trouble to those of other pets. */
  isIndividual = false
  readonly #statistics: InventoryStatistics
  /** First the pet that was served longest ago. */
  readonly #pets = new TransientMap<bigint, Pet>()
  /** Keys that are apart, and the maximum updates in their next statement. */
  readonly #keys = new Map<string, number>()
  readonly #keysInFlight = new Set<string>()
  /** Batches of one key each that are sent again. */
  #again: Update[][] = []
  /** When a statement had the last lock timeout, by `performance.now()`. */
  #timeoutAt = Number.NEGATIVE_INFINITY
  /** When the latest statement was sent that was not slow. */
  #fastAt = Number.NEGATIVE_INFINITY

  constructor(statistics: InventoryStatistics) {
    this.#statistics = statistics
  }

  get isEmpty(): boolean {
    return this.#pets.size === 0
  }

  add(update: Update): void {
    const pet = this.#pets.get(update.petId)
    if (pet === undefined) this.#pets.set(update.petId, { queue: [update], isBusy: false, isHeld: false })
    else pet.queue.push(update)
    this.#statistics.waitingUpdates++
  }

  /** Takes the oldest waiting update of each pet. */
  takeWaiting(): Batch {
    return this.#batchOf(this.#take('waiting', this.isIndividual ? 1 : MAX_BATCH_SIZE))
  }

  /** Takes the oldest update of a held pet. */
  takeHeld(): Batch {
    return { updates: this.#take('held', 1), skipsLocked: false }
  }

  /**
   * Takes updates that are apart: again, or if none of their key is in flight, for the first time. So a key that sends many updates
   * does not delay other keys, of the same pets.
   */
  takeApart(): Batch {
    const again = this.#again.shift() ?? []
    this.#statistics.waitingUpdates -= again.length
    if (again.length > 0 || this.#keys.size === 0) return this.#batchOf(again)
    const [first] = this.#take('apart', 1, (key) => !this.#keysInFlight.has(key))
    if (first === undefined) return this.#batchOf([])
    const key = keyOf(first)
    const others = this.#take('apart', (this.#keys.get(key) ?? 1) - 1, (other) => other === key)
    this.#keysInFlight.add(key)
    return { ...this.#batchOf([first, ...others]), key }
  }

  #batchOf(updates: readonly Update[]): Batch {
    return { updates, skipsLocked: performance.now() - this.#timeoutAt < AFTER_TIMEOUT_MS }
  }

  /** Takes the oldest update in a state, of a key for which `fits` is true, of each of at most `limit` pets. */
  #take(state: QueuedState, limit: number, fits: (key: string) => boolean = () => true): Update[] {
    const taken: Update[] = []
    for (const [, pet] of this.#pets) {
      if (taken.length === limit || this.#statistics.waitingUpdates === 0) break
      const isNext = (update: Update): boolean => this.#stateOf(update, pet) === state && fits(keyOf(update))
      const index = pet.isBusy ? -1 : pet.queue.findIndex(isNext)
      if (index === -1) continue
      taken.push(...pet.queue.splice(index, 1))
      pet.isBusy = true
      this.#statistics.waitingUpdates--
    }
    return taken
  }

  #stateOf(update: Update, { isHeld }: Pet): QueuedState {
    return isHeld ? 'held' : this.#keys.has(keyOf(update)) ? 'apart' : 'waiting'
  }

  /** Takes back a batch that was sent at a time. Its undecided updates are queued again. */
  onResult({ updates, key }: Batch, { undecided, trouble }: BatchResult, sentAt: number): void {
    this.#statistics.batches.observe(updates.length)
    this.#statistics.waitingUpdates += undecided.length
    if (key !== undefined) this.#keysInFlight.delete(key)

    const isSlow = this.#isSlow(sentAt)
    const isTimeout = trouble === 'lock timeout'
    if (isTimeout) this.#timeoutAt = performance.now()
    const hasTrouble = isSlow || trouble !== undefined
    const isAlone = updates.length === 1
    // Otherwise, the lock may be that of the row, which says nothing about the key.
    if (!isAlone || !isTimeout) this.#limitKeys(updates, hasTrouble)
    const isSentAgain = hasTrouble && !isAlone
    const isHeld = isAlone && (isSlow || isTimeout)
    for (const update of updates) {
      const isUndecided = undecided.includes(update)
      if (!isUndecided || !isSentAgain) this.#release(update, isUndecided, isHeld || isUndecided)
    }
    if (isSentAgain) this.#sendAgain(undecided)
  }

  /** Returns whether a statement that was sent at a time and has ended now was slow. If no later one was faster, the server is. */
  #isSlow(sentAt: number): boolean {
    if (performance.now() - sentAt > SLOW_MS) return sentAt < this.#fastAt
    this.#fastAt = Math.max(this.#fastAt, sentAt)
    return false
  }

  /** Allows the keys of a batch a quarter of its updates if it had trouble, else four times as many as before. */
  #limitKeys(updates: readonly Update[], hadTrouble: boolean): void {
    if (this.isIndividual || (!hadTrouble && this.#keys.size === 0)) return
    for (const key of new Set(updates.map(keyOf))) {
      const before = this.#keys.get(key) ?? MAX_BATCH_SIZE
      const limit = hadTrouble ? Math.ceil(updates.length / 4) : before * 4
      if (limit < MAX_BATCH_SIZE) this.#keys.set(key, limit)
      else this.#keys.delete(key)
    }
  }

  /** Sends updates of the same key again together, a quarter of the batch at a time. */
  #sendAgain(updates: readonly Update[]): void {
    const size = Math.ceil(updates.length / 4)
    for (const key of new Set(updates.map(keyOf))) {
      const like = updates.filter((update) => keyOf(update) === key)
      while (like.length > 0) this.#again.push(like.splice(0, size))
    }
  }

  /** Ends that an update keeps its pet busy, queues it if it is undecided, and moves the pet behind the others. */
  #release(update: Update, isUndecided: boolean, isHeld: boolean): void {
    const pet = this.#pets.get(update.petId)
    if (pet === undefined) return
    if (isUndecided) pet.queue.unshift(update)
    pet.isBusy = false
    pet.isHeld = isHeld
    this.#pets.delete(update.petId)
    if (pet.queue.length > 0) this.#pets.set(update.petId, pet)
  }

  /** Rejects the updates that arrived before `time` (`performance.now()`), except those in flight. */
  rejectLate(time: number): void {
    const isLate = ({ arrivedAt }: Update): boolean => arrivedAt < time
    const isInTime = (update: Update): boolean => !isLate(update)
    for (const [petId, pet] of Array.from(this.#pets)) {
      for (const update of pet.queue.filter(isLate)) this.#reject(update, pet.isHeld)
      pet.queue = pet.queue.filter(isInTime)
      if (pet.queue.length === 0 && !pet.isBusy) this.#pets.delete(petId)
    }
    for (const update of this.#again.flat().filter(isLate)) {
      this.#reject(update, false)
      this.#release(update, false, false)
    }
    this.#again = this.#again.map((updates) => updates.filter(isInTime)).filter(({ length }) => length > 0)
  }

  #reject(update: Update, isHeld: boolean): void {
    this.#statistics.waitingUpdates--
    update.reject(
      isHeld
        ? nothingChanged('locked', 'Another transaction has locked the entry or the whole inventory.')
        : nothingChanged('late', 'The database is too busy.'),
    )
  }
}
