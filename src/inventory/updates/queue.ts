import { setImmediate } from 'node:timers'
import type { Context } from '@opentelemetry/api'
import { serviceUnavailable } from '../../contract/errors.ts'
import type { InventoryItem } from '../schemas.ts'
import type { InventoryStatistics } from '../statistics.ts'
import { sendBatch } from './batch.ts'
import { MAX_BATCH_SIZE, PendingUpdates, type Update, type WaitReason } from './pending-updates.ts'
import type { QuantityUpdate } from './quantity-update.ts'
import { RoundTrip } from './round-trip.ts'
import type { UpdateRepository } from './statements.ts'

/** Connects the trace of a statement with those of the requests that it serves. */
export interface BatchTracer {
  /** The request that is being served now. */
  current(): Context
  /** Runs a statement that serves these requests. */
  run<Result>(requests: readonly Context[], work: () => Promise<Result>): Promise<Result>
}

/** Time limits of the queue, in milliseconds. */
export interface UpdateTimes {
  /** How long an update may wait until its last statement is sent. */
  readonly wait: number
  /** How long a statement may be without an answer until it is overdue: longer than a connection may take. */
  readonly overdue: number
  /** Interval between checks for late updates and overdue statements. */
  readonly check: number
  /** Interval between probes while the queue is suspended. */
  readonly probe: number
}

export const updateTimes: UpdateTimes = { wait: 2000, overdue: 2500, check: 100, probe: 500 }

/** Maximum batches in flight of all processes where the round trip is short; each process may have one. */
const MIN_BATCHES = 2

/** Each such part of the round trip allows one more batch in flight: about what a statement costs both sides. */
const ROUND_TRIP_PER_BATCH_MS = 0.5

/** Maximum pets that are always sent individually over a network. */
const FEW_PETS = 4

/** Quick round trips from this on are those of a network. On the same machine, they take about half as long. */
const NETWORK_ROUND_TRIP_MS = 0.8

/** Overdue statements that suspend the queue. */
const OVERDUE_STATEMENTS = 3

/** Maximum probes in flight. */
const MAX_PROBES = 3

const reasons: Readonly<Record<WaitReason, string>> = {
  statement: 'The database is too busy.',
  'row lock': 'Another transaction has locked the entry.',
  'table lock': 'Another transaction has locked the whole inventory.',
}

const NO_ANSWER = 'The database does not answer.'
const NOT_CONFIRMED = 'The database does not confirm changes, as its synchronous standby is away.'

/** The statements in flight, each under an object of its own, with the time when it was sent (`performance.now()`). */
type InFlight = Map<object, number>

/**
 * Sets quantities. Updates that arrive while others are in flight are sent together, as one statement and one commit. This
 * file decides when a batch is sent, `batch.ts` what happens to its updates then. The updates of each pet are in one of
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
 * The number of batches in flight follows the round trip. Two keep PostgreSQL busy: it works on one while the other is
 * under way. A long round trip leaves both sides idle, so another batch may be sent for each half millisecond of the
 * shortest round trip of the last seconds, up to the number of connections. An overloaded server makes every other round
 * trip longer, and smaller batches would make that worse. A batch is sent as soon as the number allows it. Over a network,
 * each pet is sent individually if the number allows it for all that wait, as callers in one batch wait for the slowest.
 * Up to four pets always are, because with so few callers both sides are idle most of the time, and a wait for a statement
 * in flight would cost more than another statement.
 *
 * The queue is in one of these modes:
 *
 * | Mode      | Meaning                                                | Leaves it                                           |
 * | --------- | ------------------------------------------------------ | --------------------------------------------------- |
 * | sending   | batches are sent                                       | three statements are overdue, or an overdue one has |
 * |           |                                                        | ended without an answer -> suspended                |
 * | suspended | nothing is sent; while updates wait, the queue probes: | no commit waits -> probing; one does, or the probe  |
 * |           | it asks whether commits wait for a standby             | fails: updates that wait get 503                    |
 * | probing   | one batch is sent                                      | answered -> sending; overdue -> suspended           |
 */
export class UpdateQueue {
  readonly #repository: UpdateRepository
  readonly #statistics: InventoryStatistics
  readonly #tracer: BatchTracer | undefined
  readonly #times: UpdateTimes
  /** Every pet with updates that have no outcome, longest waiting first. */
  readonly #pets = new Map<bigint, PendingUpdates>()
  /** When the statements in flight were sent, but for those that suspended the queue. */
  readonly #batches: InFlight = new Map()
  /** The same for retries of a locked row. */
  readonly #retries: InFlight = new Map()
  readonly #roundTrip: RoundTrip
  readonly #maxRetries: number
  readonly #minBatches: number
  readonly #maxBatches: number
  #mode: 'sending' | 'suspended' | 'probing' = 'sending'
  #probes = 0
  #probedAt = Number.NEGATIVE_INFINITY
  #isScheduled = false
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
    // Retries wait for a locked row; batches always have connections of their own.
    this.#maxRetries = repository.updateConnections < 6 ? 1 : 2
    this.#minBatches = Math.max(1, Math.floor(MIN_BATCHES / repository.updateProcesses))
    this.#maxBatches = Math.max(1, repository.updateConnections - this.#maxRetries)
  }

  /**
   * Returns the entry as stored, after the commit, or undefined if the pet has none.
   *
   * @throws {ApiError} 412 if the entry is not as the condition requires; 503 if the update has waited for too long; 400 if
   *   a rule of the database does not accept it
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

  /** Dispatches at once if nothing is in flight; else when all requests that have arrived by now are read. */
  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    const defer = this.#batches.size === 0 ? queueMicrotask : setImmediate
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

  /** Counts the statements that others wait for: an overdue one does not keep them from being sent. */
  #notOverdue(inFlight: InFlight): number {
    return inFlight.size - this.#overdue(inFlight)
  }

  #overdue(inFlight: InFlight): number {
    const latest = performance.now() - this.#times.overdue
    let overdue = 0
    for (const sentAt of inFlight.values()) if (sentAt <= latest) overdue++
    return overdue
  }

  #batchLimit(): number {
    if (this.#mode === 'probing') return 1
    const { shortest, quick } = this.#roundTrip
    const areFew = this.#pets.size <= FEW_PETS && quick >= NETWORK_ROUND_TRIP_MS
    const limit = this.#minBatches + Math.floor(shortest / ROUND_TRIP_PER_BATCH_MS)
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
    return batch
  }

  #nextLocked(): PendingUpdates | undefined {
    for (const pet of this.#pets.values()) if (pet.state === 'locked' && this.#hasWaiting(pet)) return pet
    return undefined
  }

  /** Rejects late updates of the pet, and returns whether others wait. */
  #hasWaiting(pet: PendingUpdates): boolean {
    this.#rejectWaiting(pet, performance.now() - this.#times.wait, reasons[pet.waitsFor])
    return pet.waiting > 0
  }

  #rejectWaiting(pet: PendingUpdates, arrivedBefore: number, reason: string): void {
    for (const { reject } of pet.removeBefore(arrivedBefore))
      reject(serviceUnavailable(`${reason} Nothing was changed. Try again shortly.`))
    if (pet.isEmpty) this.#forget(pet)
  }

  async #send(batch: readonly PendingUpdates[], inFlight: InFlight): Promise<void> {
    const statement = {}
    const sentAt = performance.now()
    inFlight.set(statement, sentAt)
    for (const pet of batch) pet.take()
    const updates = batch.flatMap((pet) => pet.inFlight)
    this.#statistics.batches.observe(updates.length)
    const isInTime = (pet: PendingUpdates): boolean =>
      pet.inFlight.every(({ arrivedAt }) => arrivedAt >= performance.now() - this.#times.wait)
    const send = (): Promise<boolean> => sendBatch(this.#repository, batch, isInTime)
    const contexts = updates.flatMap(({ context }) => context ?? [])
    const isAnswered = await (this.#tracer?.run(contexts, send) ?? send())
    const took = performance.now() - sentAt
    if (isAnswered) this.#roundTrip.observe(took)
    for (const pet of batch) this.#keepInOrder(pet)
    // The queue was suspended meanwhile if the statement is not in flight any more.
    if (inFlight.delete(statement)) {
      if (isAnswered && this.#mode === 'probing') this.#mode = 'sending'
      if (!isAnswered && took >= this.#times.overdue) this.#suspend()
    }
    this.#dispatch()
  }

  /** Forgets a pet without updates. Moves one behind the others if its updates were decided or its row is locked. */
  #keepInOrder(pet: PendingUpdates): void {
    if (pet.isEmpty) {
      this.#forget(pet)
    } else if (pet.wasDecided || pet.state === 'locked') {
      this.#pets.delete(pet.petId)
      this.#pets.set(pet.petId, pet)
    }
  }

  /**
   * Forgets a pet without updates. While its batch asks why other pets got no row, another batch may have forgotten it
   * already, and newer updates of the pet may be in another object, which has to stay.
   */
  #forget(pet: PendingUpdates): void {
    if (this.#pets.get(pet.petId) === pet) this.#pets.delete(pet.petId)
  }

  #check(): void {
    for (const pet of this.#pets.values()) this.#hasWaiting(pet)
    const overdue = this.#overdue(this.#batches) + this.#overdue(this.#retries)
    if (overdue >= (this.#mode === 'probing' ? 1 : OVERDUE_STATEMENTS)) this.#suspend()
    this.#dispatch()
    // Not as soon as nothing waits: a single caller would start and stop the timer with each update.
    if (this.#pets.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  #suspend(): void {
    this.#mode = 'suspended'
    this.#batches.clear()
    this.#retries.clear()
  }

  /** Asks whether commits wait for a standby, if updates wait. A probe changes nothing. */
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

  #rejectAll(reason: string): void {
    if (this.#mode !== 'suspended') return
    for (const pet of this.#pets.values()) this.#rejectWaiting(pet, Number.POSITIVE_INFINITY, reason)
  }
}
