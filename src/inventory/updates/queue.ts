import { setImmediate } from 'node:timers'
import { setTimeout } from 'node:timers/promises'
import type { Context } from '@opentelemetry/api'
import type { InventoryItem } from '../entry/schemas.ts'
import type { InventoryStatistics } from '../statistics.ts'
import { type Batch, type BatchResult, sendBatch } from './batch.ts'
import { PendingUpdates, type QueuedState } from './pending-updates.ts'
import type { QuantityUpdate } from './quantity-update.ts'
import type { UpdateRepository } from './repository.ts'

/** Links the trace of a statement to the traces of the requests that it serves. */
export interface BatchTracer {
  /** Returns the trace context of the current request. */
  current(): Context
  /** Runs `work`, a statement that serves these requests. */
  run<Result>(requests: readonly Context[], work: () => Promise<Result>): Promise<Result>
}

/** Time limits of the queue, in milliseconds. */
export interface UpdateTimes {
  /** How long after its arrival an update may still be sent. After that, it is rejected. */
  readonly wait: number
  /** Interval between checks for late updates. */
  readonly check: number
  /** Minimum interval between the statements of an update that is held. */
  readonly retry: number
}

export const updateTimes: UpdateTimes = { wait: 2000, check: 100, retry: 50 }

/**
 * Maximum statements in flight by the state of their updates. While PostgreSQL executes one batch, another is in transit; with more,
 * batches are smaller, and each update takes more CPU time. Each statement of held updates occupies a connection until the lock
 * timeout. As held updates and those that are apart have connections of their own, they never delay batches.
 */
const MAX_STATEMENTS: Readonly<Record<QueuedState, number>> = { waiting: 2, held: 3, apart: 4 }

/**
 * Sets quantities. Updates that arrive while others are in flight are sent together, as one statement and one commit: the oldest
 * update of each pet. `PendingUpdates` has the states of an update and decides which share a statement; this class decides when it is
 * sent; `sendBatch` sends it and decides its updates.
 *
 * Updates that have waited for `UpdateTimes.wait` are rejected with 503, except those in flight.
 */
export class UpdateQueue {
  readonly #repository: UpdateRepository
  readonly #tracer: BatchTracer | undefined
  readonly #times: UpdateTimes
  readonly #pending: PendingUpdates
  /** Statements in flight, by the state of their updates before. */
  readonly #inFlight: Record<QueuedState, number> = { waiting: 0, held: 0, apart: 0 }
  #isScheduled = false
  /** Number of updates in the last statement. */
  #batchSize = 0
  #timer: NodeJS.Timeout | undefined

  constructor(
    repository: UpdateRepository,
    statistics: InventoryStatistics,
    tracer?: BatchTracer,
    times = updateTimes,
  ) {
    this.#repository = repository
    this.#pending = new PendingUpdates(statistics)
    this.#tracer = tracer
    this.#times = times
  }

  /**
   * Returns the stored entry after the commit, or undefined if the pet has no entry.
   *
   * @throws {ApiError} 412 if the entry does not meet the condition; 503 if the update has waited for too long; 400 if a
   *   constraint or trigger of the database rejects it
   * @throws {StatementError} if the outcome is `unknown`, the update may have been made; with any other one, nothing has changed
   */
  set({ petId, quantity, condition, caller }: QuantityUpdate): Promise<InventoryItem | undefined> {
    return new Promise((resolve, reject) => {
      const arrivedAt = performance.now()
      const context = this.#tracer?.current()
      const version = undefined
      // Not `...update`: V8 takes microseconds to add properties to a copy.
      this.#pending.add({ petId, quantity, condition, caller, version, arrivedAt, context, resolve, reject })
      this.#timer ??= setInterval(() => this.#check(), this.#times.check)
      this.#schedule()
    })
  }

  /** Schedules a dispatch: in a microtask for a single caller, else after all requests that have already arrived are read. */
  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    const isSingle = this.#inFlight.waiting === 0 && this.#batchSize <= 1
    const defer = isSingle ? queueMicrotask : setImmediate
    defer(() => {
      this.#isScheduled = false
      this.#dispatch()
    })
  }

  #dispatch(): void {
    const pending = this.#pending
    const { updateConnections } = this.#repository
    pending.isIndividual = this.#repository.table().isDistributed
    const held = Math.min(MAX_STATEMENTS.held, updateConnections - MAX_STATEMENTS.waiting)
    const waiting = pending.isIndividual ? updateConnections - held : MAX_STATEMENTS.waiting
    const apart = Math.max(1, Math.min(MAX_STATEMENTS.apart, updateConnections - waiting - held))
    // First, because their updates often are older than others of the same pets.
    this.#start('apart', apart, () => pending.takeApart())
    this.#start('waiting', waiting, () => pending.takeWaiting())
    this.#start('held', held, () => pending.takeHeld())
  }

  /** Sends statements until `max` of them are in flight, or nothing is left to take. */
  #start(state: QueuedState, max: number, take: () => Batch): void {
    while (this.#inFlight[state] < max) {
      const batch = take()
      if (batch.updates.length === 0) return
      void this.#send(state, batch)
    }
  }

  async #send(state: QueuedState, batch: Batch): Promise<void> {
    const sentAt = performance.now()
    this.#inFlight[state]++
    this.#batchSize = batch.updates.length
    const send = (): Promise<BatchResult> => sendBatch(this.#repository, batch)
    const contexts = batch.updates.flatMap(({ context }) => context ?? [])
    const result = await (this.#tracer?.run(contexts, send) ?? send())
    // A trigger may give up a lock at once.
    if (state === 'held' && result.undecided.length > 0)
      await setTimeout(sentAt + this.#times.retry - performance.now())
    this.#inFlight[state]--
    this.#pending.onResult(batch, result, sentAt)
    // What is sent again must not be late. Otherwise, the timer is enough.
    if (result.undecided.length > 0) this.#check()
    else this.#dispatch()
  }

  #check(): void {
    this.#pending.rejectLate(performance.now() - this.#times.wait)
    this.#dispatch()
    // The timer is stopped only here: otherwise a single caller would start and stop it with each update.
    if (!this.#pending.isEmpty) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }
}
