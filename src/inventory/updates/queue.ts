import { setImmediate } from 'node:timers'
import type { Context } from '@opentelemetry/api'
import { removeItem } from '../../collections/remove-item.ts'
import { TransientMap } from '../../collections/transient-map.ts'
import { serviceUnavailable, type UnavailableCause } from '../../contract/errors.ts'
import type { InventoryItem } from '../schemas.ts'
import type { InventoryStatistics } from '../statistics.ts'
import { sendBatch } from './batch.ts'
import { MAX_BATCH_SIZE, PendingUpdates, type Update, type WaitReason } from './pending-updates.ts'
import type { QuantityUpdate } from './quantity-update.ts'
import { RoundTrip } from './round-trip.ts'
import type { UpdateRepository } from './statements.ts'

/** Links the trace of a statement to the traces of the requests that it serves. */
export interface BatchTracer {
  /** Returns the trace context of the current request. */
  current(): Context
  /** Runs `work`, a statement that serves these requests, and returns its result. */
  run<Result>(requests: readonly Context[], work: () => Promise<Result>): Promise<Result>
}

/** Time limits of the queue, in milliseconds. */
export interface UpdateTimes {
  /** How long after its arrival an update may still be sent. After that, it is rejected. */
  readonly wait: number
  /** Time without a response after which a statement is overdue. Longer than the time limit for a connection. */
  readonly overdue: number
  /** Interval between checks for late updates and overdue statements. */
  readonly check: number
  /** Interval between probes while the queue is suspended. */
  readonly probe: number
}

export const updateTimes: UpdateTimes = { wait: 2000, overdue: 2500, check: 100, probe: 500 }

/** Maximum batches in flight if the round trip is short. */
const MIN_BATCHES = 2

/** Increase in the round trip that allows one more batch in flight: about the time that both sides spend on a statement. */
const ROUND_TRIP_PER_BATCH_MS = 0.5

/** If at most this many pets have updates, each of them is sent individually over a network. */
const FEW_PETS = 4

/** A quick round trip of at least this time indicates a network. On the same machine, it takes about half as long. */
const NETWORK_ROUND_TRIP_MS = 0.8

/** Number of overdue statements that suspends the queue. */
const OVERDUE_STATEMENTS = 3

/** Maximum probes in flight. */
const MAX_PROBES = 3

/** Why updates are rejected, as a cause and a sentence. */
type Reason = readonly [cause: UnavailableCause, sentence: string]

const reasons: Readonly<Record<WaitReason, Reason>> = {
  statement: ['late', 'The database is too busy.'],
  'row lock': ['locked', 'Another transaction has locked the entry.'],
  'table lock': ['locked', 'Another transaction has locked the whole inventory.'],
}

const NO_ANSWER: Reason = ['late', 'The database does not answer.']
const NOT_CONFIRMED: Reason = [
  'late',
  'The database does not confirm changes, as its synchronous standby is away.',
]

/** A statement in flight, and when it was sent (`performance.now()`). */
interface SentStatement {
  readonly sentAt: number
}

/**
 * Sets quantities. Updates that arrive while others are in flight are sent together, as one statement and one commit. This
 * class decides when a batch is sent; `batch.ts` sends it and settles its updates. The updates of each pet are in one of
 * these states:
 *
 * | State     | Meaning                                                | Leaves it                                           |
 * | --------- | ------------------------------------------------------ | --------------------------------------------------- |
 * | ready     | wait for a batch                                       | a batch takes it -> in flight                       |
 * | in flight | a statement decides the oldest; newer ones wait        | decided -> ready, or removed if no update is left;  |
 * |           |                                                        | refused -> ready or locked                          |
 * | locked    | another transaction has locked the row; retried        | its retry is sent -> in flight                      |
 * |           | individually, the row that was tried longest ago first |                                                     |
 *
 * In every state, updates that have waited for `UpdateTimes.wait` are rejected with 503, except those in flight.
 *
 * The maximum number of batches in flight depends on the round trip. Two batches keep PostgreSQL busy: it executes one while
 * the other is in transit. During a long round trip both sides are idle, so the maximum grows by one for each half
 * millisecond, up to the number of connections. The shortest round trip of the last seconds counts, because an overloaded
 * server makes most round trips longer, and more and smaller batches would increase the overload. A batch is sent as soon as
 * fewer than the maximum are in flight.
 *
 * Over a network, each pet is sent individually if the maximum allows it for all waiting pets, because all callers of a batch
 * wait for its slowest update. Up to four pets are always sent individually: with so few callers, both sides are idle most
 * of the time, and waiting for a statement in flight would take longer than sending another one.
 *
 * The queue is in one of these modes:
 *
 * | Mode      | Meaning                                                | Leaves it                                           |
 * | --------- | ------------------------------------------------------ | --------------------------------------------------- |
 * | sending   | batches are sent                                       | three statements are overdue, or an overdue one has |
 * |           |                                                        | ended without an answer -> suspended                |
 * | suspended | nothing is sent; while updates wait, the queue probes: | no commit waits -> probing; one does, or the probe  |
 * |           | it asks whether commits wait for a standby             | fails: updates that wait get 503                    |
 * | probing   | one batch is sent, or if only locked rows wait, the    | answered -> sending; overdue -> suspended           |
 * |           | retry of one                                           |                                                     |
 */
export class UpdateQueue {
  readonly #repository: UpdateRepository
  readonly #statistics: InventoryStatistics
  readonly #tracer: BatchTracer | undefined
  readonly #times: UpdateTimes
  /** All pets with updates that have no outcome yet, longest waiting first. */
  readonly #pets = new TransientMap<bigint, PendingUpdates>()
  /** The batches in flight. Excludes those that were in flight when the queue was suspended. */
  readonly #batches: SentStatement[] = []
  /** The retries of locked rows in flight, with the same exception. */
  readonly #retries: SentStatement[] = []
  readonly #roundTrip: RoundTrip
  readonly #maxRetries: number
  readonly #maxBatches: number
  #mode: 'sending' | 'suspended' | 'probing' = 'sending'
  #probes = 0
  #probedAt = Number.NEGATIVE_INFINITY
  #isScheduled = false
  /** Number of updates in the last batch or retry that was sent. */
  #batchSize = 0
  #timer: NodeJS.Timeout | undefined

  constructor(
    repository: UpdateRepository,
    statistics: InventoryStatistics,
    tracer?: BatchTracer,
    times = updateTimes,
    roundTrip = new RoundTrip(),
  ) {
    this.#repository = repository
    this.#statistics = statistics
    this.#tracer = tracer
    this.#times = times
    this.#roundTrip = roundTrip
    // Retries wait for row locks, so they use their own share of the connections and never delay batches.
    this.#maxRetries = repository.updateConnections < 6 ? 1 : 2
    this.#maxBatches = Math.max(1, repository.updateConnections - this.#maxRetries)
  }

  /**
   * Returns the stored entry after the commit, or undefined if the pet has no entry.
   *
   * @throws {ApiError} 412 if the entry does not meet the condition; 503 if the update has waited for too long; 400 if a
   *   constraint or trigger of the database rejects it
   * @throws {DatabaseUnavailableError} if the outcome is unknown
   */
  set({ petId, quantity, condition }: QuantityUpdate): Promise<InventoryItem | undefined> {
    return new Promise((resolve, reject) => {
      const update: Update = {
        petId,
        quantity,
        condition,
        arrivedAt: performance.now(),
        context: this.#tracer?.current(),
        resolve,
        reject,
      }
      const pet = this.#pets.get(petId) ?? new PendingUpdates(petId, this.#statistics)
      this.#pets.set(petId, pet)
      pet.add(update)
      this.#timer ??= setInterval(() => this.#check(), this.#times.check)
      this.#schedule()
    })
  }

  /**
   * Schedules a dispatch: in a microtask for a single caller, else after all requests that have already arrived are read.
   */
  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    const isSingle = this.#batches.length === 0 && this.#batchSize <= 1
    const defer = isSingle ? queueMicrotask : setImmediate
    defer(() => {
      this.#isScheduled = false
      this.#dispatch()
    })
  }

  #dispatch(): void {
    if (this.#mode === 'suspended') this.#probe()
    while (this.#mode !== 'suspended') {
      const limit = this.#batchLimit()
      const free = limit - this.#notOverdue(this.#batches)
      if (free <= 0) break
      const batch = this.#nextBatch()
      if (batch.length === 0) break
      const isIndividual = limit > MIN_BATCHES && batch.length <= free
      void this.#send(isIndividual ? batch.slice(0, 1) : batch, this.#batches)
    }
    while (this.#mode === 'sending' && this.#notOverdue(this.#retries) < this.#maxRetries) {
      const pet = this.#nextLocked()
      if (pet === undefined) break
      void this.#send([pet], this.#retries)
    }
  }

  /** Counts the statements that are not overdue. Overdue ones do not prevent others from being sent. */
  #notOverdue(inFlight: readonly SentStatement[]): number {
    return inFlight.length - this.#overdue(inFlight)
  }

  #overdue(inFlight: readonly SentStatement[]): number {
    const latest = performance.now() - this.#times.overdue
    let overdue = 0
    for (const { sentAt } of inFlight) if (sentAt <= latest) overdue++
    return overdue
  }

  #batchLimit(): number {
    if (this.#mode === 'probing') return 1
    const { shortest, quick } = this.#roundTrip
    const areFew = this.#pets.size <= FEW_PETS && quick >= NETWORK_ROUND_TRIP_MS
    const limit = MIN_BATCHES + Math.floor(shortest / ROUND_TRIP_PER_BATCH_MS)
    return Math.min(this.#maxBatches, areFew ? Math.max(FEW_PETS, limit) : limit)
  }

  #nextBatch(): PendingUpdates[] {
    const batch: PendingUpdates[] = []
    let limit = MAX_BATCH_SIZE
    for (const pet of this.#pets.values()) {
      if (batch.length >= limit) break
      if (pet.state !== 'ready' || pet.batchLimit <= batch.length || !this.#hasWaiting(pet)) continue
      limit = Math.min(limit, pet.batchLimit)
      batch.push(pet)
    }
    // Without a batch, the mode would not change, and locked rows are not retried before it does.
    const locked = this.#mode === 'probing' && batch.length === 0 ? this.#nextLocked() : undefined
    return locked === undefined ? batch : [locked]
  }

  #nextLocked(): PendingUpdates | undefined {
    for (const pet of this.#pets.values()) if (pet.state === 'locked' && this.#hasWaiting(pet)) return pet
    return undefined
  }

  /** Rejects the pet's updates that have waited for too long. Returns whether it has others that wait. */
  #hasWaiting(pet: PendingUpdates): boolean {
    this.#rejectWaiting(pet, performance.now() - this.#times.wait, reasons[pet.waitsFor])
    return pet.waiting > 0
  }

  #rejectWaiting(pet: PendingUpdates, arrivedBefore: number, reason: Reason): void {
    reject(pet.removeBefore(arrivedBefore), reason)
    if (pet.isEmpty) this.#forget(pet)
  }

  async #send(batch: readonly PendingUpdates[], inFlight: SentStatement[]): Promise<void> {
    const statement: SentStatement = { sentAt: performance.now() }
    inFlight.push(statement)
    for (const pet of batch) pet.take()
    this.#batchSize = batch.reduce((sum, pet) => sum + pet.inFlight.length, 0)
    this.#statistics.batches.observe(this.#batchSize)
    const hasInTime = (pet: PendingUpdates): boolean => {
      reject(pet.removeInFlightBefore(performance.now() - this.#times.wait), reasons[pet.waitsFor])
      return pet.inFlight.length > 0
    }
    const send = (): Promise<boolean> => sendBatch(this.#repository, batch, hasInTime)
    const isAnswered = await (this.#tracer?.run(contextsOf(batch), send) ?? send())
    const took = performance.now() - statement.sentAt
    if (isAnswered) this.#roundTrip.observe(took)
    for (const pet of batch) this.#keepInOrder(pet)
    // If the statement is not in flight any more, the queue was suspended in the meantime.
    if (removeItem(inFlight, statement)) {
      if (isAnswered && this.#mode === 'probing') this.#mode = 'sending'
      if (!isAnswered && took >= this.#times.overdue) this.#suspend()
    }
    this.#dispatch()
  }

  /** Removes a pet without updates. Moves a pet behind the others if its updates were decided or its row is locked. */
  #keepInOrder(pet: PendingUpdates): void {
    if (pet.isEmpty) {
      this.#forget(pet)
    } else if (pet.wasDecided || pet.state === 'locked') {
      this.#pets.delete(pet.petId)
      this.#pets.set(pet.petId, pet)
    }
  }

  /**
   * Removes a pet without updates. While its batch checks why other pets got no row, another batch may already have removed
   * the pet, and newer updates of the pet may be in another object, which must not be removed.
   */
  #forget(pet: PendingUpdates): void {
    if (this.#pets.get(pet.petId) === pet) this.#pets.delete(pet.petId)
  }

  #check(): void {
    for (const pet of this.#pets.values()) this.#hasWaiting(pet)
    const overdue = this.#overdue(this.#batches) + this.#overdue(this.#retries)
    if (overdue >= (this.#mode === 'probing' ? 1 : OVERDUE_STATEMENTS)) this.#suspend()
    this.#dispatch()
    // The timer is stopped only here: otherwise a single caller would start and stop it with each update.
    if (this.#pets.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  #suspend(): void {
    this.#mode = 'suspended'
    this.#batches.length = 0
    this.#retries.length = 0
  }

  /** If updates wait, asks PostgreSQL whether commits wait for a synchronous standby. A probe changes no data. */
  #probe(): void {
    const now = performance.now()
    if (this.#pets.size === 0 || this.#probes >= MAX_PROBES || now - this.#probedAt < this.#times.probe)
      return
    this.#probedAt = now
    this.#probes++
    this.#repository
      .commitsWait()
      .then(
        (areWaiting) => (areWaiting ? this.#rejectAll(NOT_CONFIRMED) : this.#resume()),
        () => this.#rejectAll(NO_ANSWER),
      )
      .finally(() => this.#probes--)
  }

  #resume(): void {
    if (this.#mode !== 'suspended') return
    this.#mode = 'probing'
    this.#dispatch()
  }

  #rejectAll(reason: Reason): void {
    if (this.#mode !== 'suspended') return
    for (const pet of this.#pets.values()) this.#rejectWaiting(pet, Number.POSITIVE_INFINITY, reason)
  }
}

/** Rejects updates that have changed nothing, with 503. */
function reject(updates: readonly Update[], [cause, sentence]: Reason): void {
  for (const update of updates)
    update.reject(serviceUnavailable(cause, `${sentence} Nothing was changed. Try again shortly.`))
}

function contextsOf(batch: readonly PendingUpdates[]): Context[] {
  return batch.flatMap(({ inFlight }) => inFlight.flatMap(({ context }) => context ?? []))
}
