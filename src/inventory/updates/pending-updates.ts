import assert from 'node:assert'
import { TransientMap } from '../../collections/transient-map.ts'
import { nothingChanged } from '../../contract/api-error.ts'
import type { InventoryStatistics } from '../statistics.ts'
import type { Batch, BatchResult } from './batch.ts'
import type { QueuedState, Update, UpdateState } from './quantity-update.ts'

/** Maximum updates in one statement. */
const MAX_BATCH_SIZE = 500

/** How long after a lock timeout statements skip locked rows. */
const AFTER_TIMEOUT_MS = 1000

/** A statement that takes longer is slow, unless all are. */
const SLOW_MS = 500

const isInFlight = ({ state }: Update): boolean => state === 'in flight'

const keyOf = ({ caller }: Update): string => caller?.key?.name ?? ''

const pairOf = (update: Update): string => `${update.petId} ${keyOf(update)}`

/**
 * All updates without an outcome. Each is in one of these states:
 *
 * - WAITING, at first: it may share a statement with all others that wait.
 * - APART: a statement with its API key had trouble: PostgreSQL rejected it, it waited for a lock that is no row of its own, or it was
 *   slow. Its updates are sent again, and further ones of the key for the first time, only with their like: at most a quarter as many
 *   after each trouble, so that the good ones soon are out, and more after each success.
 * - HELD: its pet alone has trouble: a statement did not get its row, or one for no other pet waited for a lock or was slow. The pet's
 *   updates are sent one by one, to wait in PostgreSQL's queue.
 * - IN FLIGHT: it is sent. At most one update of a pet is, the oldest in its state, so none overtakes an older one of its API key, even
 *   if that one is sent several times.
 * - SETTLED: its caller has the outcome.
 *
 * The first three follow from the pet and the key, and the pet comes first: an update of a key that is apart whose pet is locked is
 * held until a statement gets the row, and apart again after that. From each of them, an update is sent, or settled when it is late.
 * In flight, it is settled, or queued again if PostgreSQL has not decided it.
 *
 * After a lock timeout, statements skip locked rows, so that none waits for each newly locked row.
 */
export class PendingUpdates {
  /** Whether each update is a statement of its own. Then it can cause no trouble to those of other pets. */
  isIndividual = false
  readonly #statistics: InventoryStatistics
  /** The updates of each pet, oldest first, and first the pet that was served longest ago. */
  readonly #pets = new TransientMap<bigint, Update[]>()
  readonly #heldPets = new Set<bigint>()
  /** Keys that are apart, and the maximum updates in their next statement. */
  readonly #keys = new Map<string, number>()
  /** The same of the pets of keys whose updates are sent again after trouble. */
  readonly #pairs = new Map<string, number>()
  readonly #keysInFlight = new Set<string>()
  /** When a statement that waits for locked rows had the last timeout, by `performance.now()`. */
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
    const updates = this.#pets.get(update.petId)
    if (updates === undefined) this.#pets.set(update.petId, [update])
    else updates.push(update)
    this.#statistics.updates.waiting++
    this.#move(update, this.#stateOf(update))
  }

  /** Takes the oldest waiting update of each pet. */
  takeWaiting(): Batch {
    const limit = this.isIndividual ? 1 : MAX_BATCH_SIZE
    return { updates: this.#take('waiting', limit), skipsLocked: this.#skipsLocked }
  }

  /** Takes the oldest held update. */
  takeHeld(): Batch {
    return { updates: this.#take('held', 1), skipsLocked: false }
  }

  /**
   * Takes updates of one key that are apart: again, or if none of the key is in flight, for the first time. So a key that sends many
   * updates does not delay other keys, of the same pets.
   */
  takeApart(): Batch {
    const skipsLocked = this.#skipsLocked
    const hadTrouble = (update: Update): boolean => this.#pairs.has(pairOf(update))
    const isFree = (update: Update): boolean => hadTrouble(update) || !this.#keysInFlight.has(keyOf(update))
    const [first] = this.#take('apart', 1, isFree)
    if (first === undefined) return { updates: [], skipsLocked }
    const key = keyOf(first)
    const limit = this.#limitOf(first)
    const fits = (update: Update): boolean =>
      keyOf(update) === key && hadTrouble(update) === hadTrouble(first) && this.#limitOf(update) >= limit
    const updates = [first, ...this.#take('apart', limit - 1, fits)]
    if (hadTrouble(first)) return { updates, skipsLocked }
    this.#keysInFlight.add(key)
    return { updates, skipsLocked, key }
  }

  /** Takes the oldest update in a state for which `fits` is true, of each of at most `limit` pets. */
  #take(state: QueuedState, limit: number, fits: (update: Update) => boolean = () => true): Update[] {
    const taken: Update[] = []
    for (const [, updates] of this.#pets) {
      if (taken.length === limit || this.#statistics.updates[state] === 0) break
      const next = updates.find((update) => update.state === state && fits(update))
      if (next === undefined || updates.some(isInFlight)) continue
      this.#move(next, 'in flight')
      taken.push(next)
    }
    return taken
  }

  get #skipsLocked(): boolean {
    return performance.now() - this.#timeoutAt < AFTER_TIMEOUT_MS
  }

  #limitOf(update: Update): number {
    if (this.isIndividual) return 1
    return this.#pairs.get(pairOf(update)) ?? this.#keys.get(keyOf(update)) ?? MAX_BATCH_SIZE
  }

  /** Takes back a batch that was sent at a time. Its undecided updates are queued again. */
  onResult(batch: Batch, result: BatchResult, sentAt: number): void {
    this.#statistics.batches.observe(batch.updates.length)
    if (batch.key !== undefined) this.#keysInFlight.delete(batch.key)
    if (result.end !== 'failed') this.#learn(batch, result, sentAt)
    for (const update of batch.updates)
      this.#move(update, result.undecided.includes(update) ? this.#stateOf(update) : 'settled')
    for (const { petId } of batch.updates) this.#sort(petId)
  }

  /** Limits the pets and the keys of a batch that had trouble, and relaxes those of one that had none. */
  #learn({ updates, skipsLocked }: Batch, { undecided, end }: BatchResult, sentAt: number): void {
    const now = performance.now()
    const isFast = now - sentAt <= SLOW_MS
    if (isFast) this.#fastAt = Math.max(this.#fastAt, sentAt)
    // If no later statement was faster, it is the server that is slow.
    const isSlow = !isFast && sentAt < this.#fastAt
    const isTimeout = end === 'lock timeout'
    if (isTimeout && !skipsLocked) this.#timeoutAt = now
    const hadTrouble = this.#heldPets.size + this.#keys.size + this.#pairs.size > 0
    if (!hadTrouble && end === 'made' && !isSlow && undecided.length === 0) return

    const hasTrouble = isSlow || end === 'rejected' || (isTimeout && skipsLocked)
    const isAlone = updates.length === 1
    const quarter = Math.ceil(updates.length / 4)
    // The trouble of a held pet, or of what is sent again, says nothing about the keys.
    const isKnown = updates.some(
      (update) => this.#heldPets.has(update.petId) || this.#pairs.has(pairOf(update)),
    )
    for (const update of updates) {
      const isUndecided = undecided.includes(update)
      if ((isAlone && (isSlow || isTimeout)) || (isUndecided && end === 'made'))
        this.#heldPets.add(update.petId)
      else if (isUndecided && hasTrouble) this.#pairs.set(pairOf(update), quarter)
      else if (!isTimeout) this.#heldPets.delete(update.petId)
    }
    const apart = this.#keys.size
    for (const key of new Set(updates.map(keyOf))) {
      const relaxed = (this.#keys.get(key) ?? MAX_BATCH_SIZE) * 4
      if (hasTrouble && !isKnown && !this.isIndividual) this.#keys.set(key, quarter)
      else if (hasTrouble || isTimeout) continue
      else if (relaxed < MAX_BATCH_SIZE) this.#keys.set(key, relaxed)
      else this.#keys.delete(key)
    }
    if (this.#keys.size !== apart) for (const [petId] of Array.from(this.#pets)) this.#sort(petId)
  }

  /** Rejects the queued updates that arrived before `time` (`performance.now()`). */
  rejectLate(time: number): void {
    for (const [petId, updates] of Array.from(this.#pets)) {
      const late = updates.filter(({ state, arrivedAt }) => state !== 'in flight' && arrivedAt < time)
      for (const update of late) {
        update.reject(
          update.state === 'held'
            ? nothingChanged('locked', 'Another transaction has locked the entry or the whole inventory.')
            : nothingChanged('late', 'The database is too busy.'),
        )
        this.#move(update, 'settled')
      }
      if (late.length > 0) this.#sort(petId)
    }
  }

  /** Moves the queued updates of a pet to their states now, without the settled ones, and the pet behind the others. */
  #sort(petId: bigint): void {
    const updates = (this.#pets.get(petId) ?? []).filter(({ state }) => state !== 'settled')
    this.#pets.delete(petId)
    if (updates.length === 0) this.#heldPets.delete(petId)
    else this.#pets.set(petId, updates)
    for (const update of updates) if (update.state !== 'in flight') this.#move(update, this.#stateOf(update))
  }

  #stateOf(update: Update): QueuedState {
    if (this.#heldPets.has(update.petId)) return 'held'
    if (this.#pairs.size > 0 && this.#pairs.has(pairOf(update))) return 'apart'
    return this.#keys.has(keyOf(update)) ? 'apart' : 'waiting'
  }

  #move(update: Update, state: UpdateState): void {
    const isPossible = update.state === 'in flight' ? state !== 'in flight' : update.state !== 'settled'
    assert(isPossible, `an update that was ${update.state} cannot be ${state}`)
    if (state === 'settled' && this.#pairs.size > 0) this.#pairs.delete(pairOf(update))
    this.#statistics.updates[update.state]--
    this.#statistics.updates[state]++
    update.state = state
  }
}
