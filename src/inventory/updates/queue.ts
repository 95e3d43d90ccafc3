import { setImmediate } from 'node:timers'
import type { Context } from '@opentelemetry/api'
import { TransientMap } from '../../collections/transient-map.ts'
import type { InventoryItem } from '../entry/schemas.ts'
import type { InventoryStatistics } from '../statistics.ts'
import { BatchSender } from './batch.ts'
import { PendingUpdates } from './pending-updates.ts'
import type { QuantityUpdate } from './quantity-update.ts'
import type { UpdateRepository } from './repository.ts'

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
  /** Interval between checks for late updates. */
  readonly check: number
}

export const updateTimes: UpdateTimes = { wait: 2000, check: 100 }

/** Batches in flight if PostgreSQL is near: it executes one while the other is in transit. More batches would be smaller. */
const NEAR_BATCHES = 2

/** If even the fastest statement takes this long, both sides are idle most of the time, and more batches are in flight. */
const FAR_STATEMENT_MS = 0.8

/**
 * Sets quantities. Updates that arrive while others are in flight are sent together, as one statement and one commit: the oldest
 * update of each pet. This class decides when a batch is sent; `BatchSender` sends it and decides its updates.
 *
 * At most two batches are in flight, or as many as there are connections if PostgreSQL is far away or Citus distributes the
 * table. Pets whose row is locked are retried individually, on connections of their own, so that they never delay batches. The
 * row that was tried longest ago is first.
 *
 * Updates that have waited for `UpdateTimes.wait` are rejected with 503, except those in flight.
 */
export class UpdateQueue {
  readonly #repository: UpdateRepository
  readonly #statistics: InventoryStatistics
  readonly #tracer: BatchTracer | undefined
  readonly #times: UpdateTimes
  readonly #sender: BatchSender
  /** All pets with updates that have no outcome yet, longest waiting first. */
  readonly #pets = new TransientMap<bigint, PendingUpdates>()
  readonly #inFlight = { batches: 0, retries: 0 }
  readonly #maxRetries: number
  readonly #maxBatches: number
  #isScheduled = false
  /** Number of updates in the last batch or retry that was sent. */
  #batchSize = 0
  #timer: NodeJS.Timeout | undefined

  constructor(
    repository: UpdateRepository,
    statistics: InventoryStatistics,
    tracer?: BatchTracer,
    times = updateTimes,
  ) {
    this.#repository = repository
    this.#statistics = statistics
    this.#tracer = tracer
    this.#times = times
    this.#sender = new BatchSender(repository, statistics, times.wait)
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
  set({ petId, quantity, condition, caller }: QuantityUpdate): Promise<InventoryItem | undefined> {
    return new Promise((resolve, reject) => {
      const arrivedAt = performance.now()
      const context = this.#tracer?.current()
      const pet = this.#pets.get(petId) ?? new PendingUpdates(petId, this.#statistics, this.#onDecided)
      pet.add({ petId, quantity, condition, caller, arrivedAt, context, resolve, reject })
      this.#pets.set(petId, pet)
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
    const isSingle = this.#inFlight.batches === 0 && this.#batchSize <= 1
    const defer = isSingle ? queueMicrotask : setImmediate
    defer(() => {
      this.#isScheduled = false
      this.#dispatch()
    })
  }

  #dispatch(): void {
    while (this.#inFlight.batches < this.#batchLimit()) {
      const batch = this.#next(this.#repository.maxBatchSize(), false)
      if (batch.length === 0) break
      void this.#send(batch, 'batches')
    }
    while (this.#inFlight.retries < this.#maxRetries) {
      const retry = this.#next(1, true)
      if (retry.length === 0) break
      void this.#send(retry, 'retries')
    }
  }

  #batchLimit(): number {
    const isNear = this.#sender.fastest.milliseconds < FAR_STATEMENT_MS && this.#repository.maxBatchSize() > 1
    return isNear ? Math.min(NEAR_BATCHES, this.#maxBatches) : this.#maxBatches
  }

  /** Returns the next pets, of which none or all are locked, whose oldest update can be sent. */
  #next(size: number, isLocked: boolean): PendingUpdates[] {
    const next: PendingUpdates[] = []
    for (const pet of this.#pets.values()) {
      if (next.length >= size) break
      if (pet.inFlight === undefined && pet.isLocked === isLocked && this.#hasWaiting(pet)) next.push(pet)
    }
    return next
  }

  /** Rejects the pet's updates that have waited for too long. Returns whether it has others that wait. */
  #hasWaiting(pet: PendingUpdates): boolean {
    pet.rejectWaiting(performance.now() - this.#times.wait)
    if (pet.isEmpty) this.#pets.delete(pet.petId)
    return pet.waiting > 0
  }

  async #send(pets: readonly PendingUpdates[], kind: 'batches' | 'retries'): Promise<void> {
    this.#inFlight[kind]++
    this.#batchSize = pets.length
    for (const pet of pets) pet.take()
    const send = (): Promise<readonly PendingUpdates[]> => this.#sender.send(pets)
    const locked = await (this.#tracer?.run(contextsOf(pets), send) ?? send())
    for (const pet of locked) {
      pet.putBack()
      this.#moveToEnd(pet)
    }
    this.#inFlight[kind]--
    this.#dispatch()
  }

  /** Removes a pet without updates. Moves it behind the others if it has some. */
  readonly #onDecided = (pet: PendingUpdates): void => {
    if (pet.isEmpty) this.#pets.delete(pet.petId)
    else this.#moveToEnd(pet)
  }

  #moveToEnd(pet: PendingUpdates): void {
    this.#pets.delete(pet.petId)
    this.#pets.set(pet.petId, pet)
  }

  #check(): void {
    for (const pet of this.#pets.values()) this.#hasWaiting(pet)
    this.#dispatch()
    // The timer is stopped only here: otherwise a single caller would start and stop it with each update.
    if (this.#pets.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }
}

function contextsOf(pets: readonly PendingUpdates[]): Context[] {
  return pets.flatMap(({ inFlight }) => inFlight?.context ?? [])
}
