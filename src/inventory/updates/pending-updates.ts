import assert from 'node:assert'
import { TransientMap } from '../../collections/transient-map.ts'
import { nothingChanged } from '../../contract/api-error.ts'
import type { InventoryStatistics } from '../statistics.ts'
import type { Batch, BatchResult } from './batch.ts'
import type { QueuedState, Update, UpdateState } from './quantity-update.ts'

/** Maximum updates in one statement. */
export const MAX_BATCH_SIZE = 500

/** How long after a lock timeout statements skip locked rows. */
const AFTER_TIMEOUT_MS = 1000

/** A statement that takes longer is in trouble, if a later one was faster. */
const SLOW_MS = 500

/** How long after the last trouble of a pet or key its next statements are no longer apart. */
const FORGET_MS = 60_000

/** What is known about a pet or a key of which a statement had trouble. */
interface Trouble {
  /** Maximum updates in its next statement. */
  readonly limit: number
  /** When it had trouble, or a statement of the held pet was sent, by `performance.now()`. */
  readonly at: number
}

const isInFlight = ({ state }: Update): boolean => state === 'in flight'

const keyOf = ({ caller }: Update): string => caller?.key?.name ?? ''

/**
 * All updates without an outcome. Each is in one of these states:
 *
 * - WAITING, at first: it may share a statement with all others that wait.
 * - APART: a statement with its key or its pet had trouble: PostgreSQL rejected it, or it waited for a lock that is no row of its own,
 *   or it was slow. The pets of that statement and the other pets of its keys share statements only among themselves and with one key,
 *   half as many after each trouble, so that the good ones soon are out.
 * - HELD: its pet is the trouble. A statement did not get its row, or one with it alone waited for a lock or was slow. Its updates are
 *   sent one by one, and wait in PostgreSQL's queue.
 * - IN FLIGHT: it is sent. At most one update of a pet is, the oldest in its state, so none overtakes an older one of its API key, even
 *   if that one is sent several times.
 * - SETTLED: its caller has the outcome.
 *
 * The first three follow from the pet and the key, and the pet comes first: an update of a key that is apart whose pet is locked is
 * held until a statement gets the row, and the next one of the pet is apart. From each of them, an update is sent, or settled when it
 * is late. In flight, it is settled, or queued again if PostgreSQL has not decided it.
 *
 * After a lock timeout, statements skip locked rows, so that none waits for each newly locked row.
 */
export class PendingUpdates {
  /** Maximum updates in one statement. If it is 1, no key is set apart, as no update shares a statement. */
  limit = MAX_BATCH_SIZE
  readonly #statistics: InventoryStatistics
  readonly #retryMs: number
  /** The updates of each pet, oldest first, and first the pet that was served longest ago. */
  readonly #pets = new TransientMap<bigint, Update[]>()
  /** The pets and the keys in trouble, longest unchanged first. */
  readonly #troubles = new Map<bigint | string, Trouble>()
  /** The lanes with a statement in flight: a key that sends many updates does not delay the other keys. */
  readonly #lanes = new Set<string>()
  /** When a statement that waits for locked rows had the last timeout, by `performance.now()`. */
  #timeoutAt = Number.NEGATIVE_INFINITY
  /** When the latest statement was sent that was not slow. */
  #fastAt = Number.NEGATIVE_INFINITY

  /** @param retryMs minimum interval between the statements of a held pet */
  constructor(statistics: InventoryStatistics, retryMs: number) {
    this.#statistics = statistics
    this.#retryMs = retryMs
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
  takeWaiting(): Batch | undefined {
    return this.#batchOf(this.#take('waiting', this.limit))
  }

  /** Takes the oldest held update. Its statement waits for locked rows. */
  takeHeld(): Batch | undefined {
    const latest = performance.now() - this.#retryMs
    const updates = this.#take('held', 1, ({ petId }) => (this.#troubles.get(petId)?.at ?? 0) <= latest)
    for (const { petId } of updates) this.#note(petId, 0)
    return this.#batchOf(updates, { isOfPets: true, skipsLocked: false })
  }

  /** Takes updates that are apart, all of one lane without a statement in flight. */
  takeApart(): Batch | undefined {
    const [first] = this.#take('apart', 1, (update) => !this.#lanes.has(this.#laneOf(update)))
    if (first === undefined) return undefined
    const lane = this.#laneOf(first)
    const size = Math.min(this.limit, this.#limitOf(first))
    const fits = (update: Update): boolean => this.#laneOf(update) === lane && this.#limitOf(update) >= size
    const updates = [first, ...this.#take('apart', size - 1, fits)]
    this.#lanes.add(lane)
    return this.#batchOf(updates, { isOfPets: this.#troubles.has(first.petId), lane })
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

  #batchOf(updates: readonly Update[], rest: Partial<Batch> = {}): Batch | undefined {
    if (updates.length === 0) return undefined
    const sentAt = performance.now()
    const skipsLocked = sentAt - this.#timeoutAt < AFTER_TIMEOUT_MS
    return { updates, sentAt, isOfPets: false, skipsLocked, ...rest }
  }

  /** The pets in trouble of a key have a lane, and its other pets have one. */
  #laneOf(update: Update): string {
    return `${this.#troubles.has(update.petId) ? 'pets' : 'key'} ${keyOf(update)}`
  }

  #limitOf(update: Update): number {
    const trouble = this.#troubles.get(update.petId) ?? this.#troubles.get(keyOf(update))
    return trouble?.limit ?? MAX_BATCH_SIZE
  }

  /** Takes back a batch that was sent. Its undecided updates are queued again. */
  onResult(batch: Batch, result: BatchResult): void {
    this.#statistics.batches.observe(batch.updates.length)
    if (batch.lane !== undefined) this.#lanes.delete(batch.lane)
    for (const update of batch.updates) {
      this.#move(update, result.undecided.includes(update) ? 'waiting' : 'settled')
    }
    if (result.end !== 'failed') this.#learn(batch, result)
    for (const { petId } of batch.updates) this.#sort(petId)
  }

  /** Notes which pets and keys are in trouble, and which no longer are. */
  #learn({ updates, sentAt, isOfPets, skipsLocked }: Batch, { undecided, end }: BatchResult): void {
    const now = performance.now()
    const isFast = now - sentAt <= SLOW_MS
    if (isFast) this.#fastAt = Math.max(this.#fastAt, sentAt)
    // If no later statement was faster, it is the server that is slow.
    const isSlow = !isFast && this.#fastAt > sentAt
    const isTimeout = end === 'lock timeout'
    if (isTimeout && !skipsLocked) this.#timeoutAt = now
    if (this.#troubles.size === 0 && end === 'made' && !isSlow && undecided.length === 0) return
    const isAlone = updates.length === 1
    const hasTrouble = isSlow || end === 'rejected' || (isTimeout && skipsLocked)
    const half = Math.ceil(updates.length / 2)

    for (const update of updates) {
      const { petId } = update
      const isPetToBlame = isAlone ? isTimeout || isSlow : end === 'made' && undecided.includes(update)
      if (isPetToBlame) this.#note(petId, 0)
      else if (hasTrouble && !isAlone) this.#note(petId, half)
      else if (!isTimeout) this.#troubles.delete(petId)
    }
    const apart = this.#troubles.size
    if (hasTrouble && !isOfPets && this.limit > 1)
      for (const update of updates) this.#note(keyOf(update), half)
    else if (!hasTrouble && !isTimeout && apart > 0)
      for (const key of new Set(updates.map(keyOf))) this.#relax(key)
    // The pets of the batch are sorted anyway.
    if (this.#troubles.size !== apart) this.#sortAll()
  }

  #note(what: bigint | string, limit: number): void {
    // As the last one.
    this.#troubles.delete(what)
    this.#troubles.set(what, { limit, at: performance.now() })
  }

  /** Doubles the limit of a key after a statement without trouble, until the key is no longer apart. */
  #relax(key: string): void {
    const limit = (this.#troubles.get(key)?.limit ?? MAX_BATCH_SIZE) * 2
    if (limit < MAX_BATCH_SIZE) this.#note(key, limit)
    else this.#troubles.delete(key)
  }

  /** Rejects the queued updates that arrived before `time` (`performance.now()`), and forgets old troubles. */
  rejectLate(time: number): void {
    const known = this.#troubles.size
    for (const [what, { at }] of this.#troubles) {
      if (at > time - FORGET_MS) break
      this.#troubles.delete(what)
    }
    if (this.#troubles.size < known) this.#sortAll()
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

  #sortAll(): void {
    for (const [petId] of Array.from(this.#pets)) this.#sort(petId)
  }

  /** Moves the queued updates of a pet to their states now, without the settled ones, and the pet behind the others. */
  #sort(petId: bigint): void {
    const updates = (this.#pets.get(petId) ?? []).filter(({ state }) => state !== 'settled')
    this.#pets.delete(petId)
    if (updates.length > 0) this.#pets.set(petId, updates)
    for (const update of updates) if (update.state !== 'in flight') this.#move(update, this.#stateOf(update))
  }

  #stateOf(update: Update): QueuedState {
    if (this.#troubles.size === 0) return 'waiting'
    const trouble = this.#troubles.get(update.petId)
    if (trouble?.limit === 0) return 'held'
    return trouble !== undefined || this.#troubles.has(keyOf(update)) ? 'apart' : 'waiting'
  }

  #move(update: Update, state: UpdateState): void {
    const isPossible = update.state === 'in flight' ? state !== 'in flight' : update.state !== 'settled'
    assert(isPossible, `an update that was ${update.state} cannot be ${state}`)
    this.#statistics.updates[update.state]--
    this.#statistics.updates[state]++
    update.state = state
  }
}
