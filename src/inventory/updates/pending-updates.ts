import assert from 'node:assert'
import { TransientMap } from '../../collections/transient-map.ts'
import { nothingChanged } from '../../contract/api-error.ts'
import type { InventoryStatistics } from '../statistics.ts'
import type { Batch, BatchResult } from './batch.ts'
import type { QueuedState, Update, UpdateState } from './quantity-update.ts'

/** Maximum updates in one statement. */
export const MAX_BATCH_SIZE = 500

/** How long after a lock timeout statements skip locked rows, or are sent individually. */
const AFTER_TIMEOUT_MS = 1000

/** Interval between statements for all locked pets. */
const POLL_MS = 50

const isInFlight = ({ state }: Update): boolean => state === 'in flight'

const keyOf = ({ caller }: Update): string => caller?.key?.name ?? ''

/**
 * All updates without an outcome. Each is in one of these states:
 *
 * - WAITING, at first: it may share a statement with all others that wait.
 * - LOCKED: a statement did not get the row of its pet, or what a trigger waits for. All updates of the pet are locked until one is
 *   decided. They are sent individually, to wait in PostgreSQL's queue, and together at intervals, without those whose row still is
 *   locked.
 * - REFUSED: PostgreSQL has refused an update of its API key, because of a constraint or a trigger of the operator. It shares
 *   statements only with others of the key, more with each success, until the key waits again.
 * - IN FLIGHT: it is sent. At most one update of a pet is, the oldest in its state, so none overtakes an older one of its API key, even
 *   if that one is sent several times.
 * - SETTLED: its caller has the outcome.
 *
 * The first three follow from the pet and the key. From each of them, an update is sent, or settled when it is late. In flight, it is
 * settled, or queued again if PostgreSQL has not decided it.
 *
 * After a lock timeout, statements skip locked rows, so that none waits for each newly locked row. If one that skips them has a timeout,
 * a trigger or the whole table waits for another lock: then waiting updates are sent individually, so that only those become locked
 * that have a timeout themselves.
 */
export class PendingUpdates {
  readonly #statistics: InventoryStatistics
  /** The updates of each pet, oldest first, and first the pet that was served longest ago. */
  readonly #pets = new TransientMap<bigint, Update[]>()
  readonly #lockedPets = new Set<bigint>()
  /** API keys with refused updates, and the maximum updates in their next statement. */
  readonly #refusedKeys = new Map<string, number>()
  /** The keys of refused updates in flight: one that sends many does not delay the other ones. */
  readonly #keysInFlight = new Set<string>()
  /** When a statement that waits for locked rows had the last timeout, and one that skips them, by `performance.now()`. */
  #timeoutAt = Number.NEGATIVE_INFINITY
  #blockedAt = Number.NEGATIVE_INFINITY
  #polledAt = Number.NEGATIVE_INFINITY

  constructor(statistics: InventoryStatistics) {
    this.#statistics = statistics
  }

  get isEmpty(): boolean {
    return this.#pets.size === 0
  }

  /** Whether to send waiting updates individually. */
  get isIndividual(): boolean {
    return performance.now() - this.#blockedAt < AFTER_TIMEOUT_MS
  }

  add(update: Update): void {
    const updates = this.#pets.get(update.petId)
    if (updates === undefined) this.#pets.set(update.petId, [update])
    else updates.push(update)
    this.#statistics.updates.waiting++
    this.#move(update, this.#stateOf(update))
  }

  /** Takes the oldest updates of at most `limit` pets in a state. If it is `refused`, all are of one key. */
  take(state: QueuedState, limit: number): Batch {
    if (this.#statistics.updates[state] === 0) return { state, updates: [], skipsLocked: false }
    const now = performance.now()
    const isPoll = state === 'locked' && now - this.#polledAt >= POLL_MS
    const skipsLocked = isPoll || (state !== 'locked' && now - this.#timeoutAt < AFTER_TIMEOUT_MS)
    if (state !== 'refused')
      return { state, updates: this.#take(state, state === 'waiting' || isPoll ? limit : 1), skipsLocked }
    const [first] = this.#take(state, 1, (update) => !this.#keysInFlight.has(keyOf(update)))
    if (first === undefined) return { state, updates: [], skipsLocked }
    const key = keyOf(first)
    const most = Math.min(limit, this.#refusedKeys.get(key) ?? limit)
    const others = this.#take(state, most - 1, (update) => keyOf(update) === key)
    this.#keysInFlight.add(key)
    return { state, updates: [first, ...others], skipsLocked }
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

  /** Takes back a batch that was sent. Its undecided updates are queued again. */
  onResult({ state, updates, skipsLocked }: Batch, { undecided, reason }: BatchResult): void {
    this.#statistics.batches.observe(updates.length)
    const isTimeout = reason === 'lock timeout'
    if (isTimeout && !skipsLocked) this.#timeoutAt = performance.now()
    if (isTimeout && skipsLocked && state !== 'locked') this.#blockedAt = performance.now()
    if (state === 'locked' && skipsLocked) this.#polledAt = performance.now()
    // The next statement that skips locked rows can tell why.
    if (reason === 'no row' && !skipsLocked) this.#polledAt = Number.NEGATIVE_INFINITY
    const areLocked = reason === 'no row' || (isTimeout && (state === 'locked' || updates.length === 1))
    for (const update of updates) {
      const isUndecided = undecided.includes(update)
      if (areLocked && isUndecided) this.#lockedPets.add(update.petId)
      else this.#lockedPets.delete(update.petId)
      this.#move(update, isUndecided ? this.#stateOf(update) : 'settled')
      if (state === 'refused') this.#keysInFlight.delete(keyOf(update))
    }
    if (reason === 'refusal' || this.#refusedKeys.size > 0) this.#resize(updates, reason === 'refusal')
    for (const { petId } of updates) this.#sort(petId)
  }

  /** Rejects the queued updates that arrived before `time` (`performance.now()`). */
  rejectLate(time: number): void {
    for (const [petId, updates] of Array.from(this.#pets)) {
      const late = updates.filter(({ state, arrivedAt }) => state !== 'in flight' && arrivedAt < time)
      for (const update of late) {
        update.reject(
          update.state === 'locked'
            ? nothingChanged('locked', 'Another transaction has locked the entry or the whole inventory.')
            : nothingChanged('late', 'The database is too busy.'),
        )
        this.#move(update, 'settled')
      }
      if (late.length > 0) this.#sort(petId)
    }
  }

  /**
   * Separates the keys of a refused batch, and halves the size of their next statement. Any other result doubles it, until they
   * share statements with others again.
   */
  #resize(batch: readonly Update[], isRefused: boolean): void {
    const separated = this.#refusedKeys.size
    for (const key of new Set(batch.map(keyOf))) {
      const former = this.#refusedKeys.get(key) ?? MAX_BATCH_SIZE
      const limit = isRefused ? Math.ceil(batch.length / 2) : former * 2
      if (limit < MAX_BATCH_SIZE) this.#refusedKeys.set(key, limit)
      else this.#refusedKeys.delete(key)
    }
    if (this.#refusedKeys.size === separated) return
    for (const [petId] of Array.from(this.#pets)) this.#sort(petId)
  }

  /** Moves the queued updates of a pet to their states now, without the settled ones, and the pet behind the others. */
  #sort(petId: bigint): void {
    const updates = (this.#pets.get(petId) ?? []).filter(({ state }) => state !== 'settled')
    this.#pets.delete(petId)
    if (updates.length === 0) this.#lockedPets.delete(petId)
    else this.#pets.set(petId, updates)
    for (const update of updates) if (update.state !== 'in flight') this.#move(update, this.#stateOf(update))
  }

  #stateOf(update: Update): QueuedState {
    if (this.#lockedPets.has(update.petId)) return 'locked'
    return this.#refusedKeys.has(keyOf(update)) ? 'refused' : 'waiting'
  }

  #move(update: Update, state: UpdateState): void {
    const isPossible = update.state === 'in flight' ? state !== 'in flight' : update.state !== 'settled'
    assert(isPossible, `an update that was ${update.state} cannot be ${state}`)
    this.#statistics.updates[update.state]--
    this.#statistics.updates[state]++
    update.state = state
  }
}
