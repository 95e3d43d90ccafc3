import { setImmediate } from 'node:timers'
import { setTimeout } from 'node:timers/promises'
import type { Context } from '@opentelemetry/api'
import type { RequestMetrics } from '../../metrics/request-metrics.ts'
import type { InventoryItem } from '../entry/schemas.ts'
import { type Batch, type BatchKind, PendingUpdates } from './pending-updates.ts'
import type { QuantityUpdate } from './quantity-update.ts'
import type { UpdateRepository } from './repository.ts'
import { settleMade } from './settle-made.ts'

/** Links the trace of a statement to the traces of the requests that it serves. */
export interface BatchTracer {
  /** Returns the trace context of the current request. */
  current(): Context
  /** Runs `work`, a statement that serves these requests. */
  run<Result>(requests: readonly Context[], work: () => Promise<Result>): Promise<Result>
}

/** Time limits of the queue, in milliseconds. */
export const updateTimes = {
  /** How long after its arrival an update may still be sent. After that, it is rejected. */
  wait: 2000,
  /** How long a statement is in flight before it is slow. */
  slow: 500,
  /** Interval between checks for late updates and slow statements. */
  check: 100,
  /** Minimum interval between the individual statements of an update. */
  retry: 50,
}

export type UpdateTimes = Readonly<typeof updateTimes>

/**
 * Maximum statements in flight. While PostgreSQL executes one shared batch, another is in transit; with more, batches are smaller, and
 * each update takes more CPU time. An individual statement may occupy its connection until the lock timeout. As each kind has
 * connections of its own, no trouble delays shared batches.
 */
const MAX_IN_FLIGHT: Readonly<Record<BatchKind, number>> = { shared: 2, individual: 3, apart: 4 }

/**
 * Sets quantities. Updates that arrive while others are in flight are sent together, as one statement and one commit: the oldest
 * update of each pet. This class decides when, and `PendingUpdates` which of them, and what follows from the result of the statement:
 *
 * | PostgreSQL responds                     | Result           | Next                                               |
 * | --------------------------------------- | ---------------- | -------------------------------------------------- |
 * | with rows                               | made             | 200; those of pets without a row: see `settleMade` |
 * | with a lock timeout                     | locked           | sent again                                         |
 * | with any other ERROR                    | rejected         | a batch of several is sent again, else rejected    |
 * | not, or that the server is read-only    | unavailable      | rejected                                           |
 * | not, or with the end of the connection  | unknown          | rejected, never sent again                         |
 *
 * A statement that is in flight for `UpdateTimes.slow` is slow. If it is shared, it counts among those apart from then on, and the next
 * batch takes its place. Updates that have waited for `UpdateTimes.wait` are rejected with 503, except those in flight.
 */
export class UpdateQueue {
  readonly #repository: UpdateRepository
  readonly #metrics: RequestMetrics
  readonly #tracer: BatchTracer | undefined
  readonly #times: UpdateTimes
  readonly #pending = new PendingUpdates()
  #inFlight: Batch[] = []
  #isScheduled = false
  /** Number of updates in the last statement. */
  #batchSize = 0
  #timer: NodeJS.Timeout | undefined

  constructor(
    repository: UpdateRepository,
    metrics: RequestMetrics,
    tracer?: BatchTracer,
    times: UpdateTimes = updateTimes,
  ) {
    this.#repository = repository
    this.#metrics = metrics
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
    const isSingle = this.#batchSize <= 1 && this.#count('shared') === 0
    const defer = isSingle ? queueMicrotask : setImmediate
    defer(() => {
      this.#isScheduled = false
      this.#dispatch()
    })
  }

  #count(kind: BatchKind): number {
    let count = 0
    for (const batch of this.#inFlight) if (batch.kind === kind) count++
    return count
  }

  /** How many statements of a kind may be in flight, with the connections that there are. */
  #limit(kind: BatchKind): number {
    const { updateConnections } = this.#repository
    const individual = Math.min(MAX_IN_FLIGHT.individual, updateConnections - MAX_IN_FLIGHT.shared)
    const shared = this.#pending.isIndividual ? updateConnections - individual : MAX_IN_FLIGHT.shared
    const apart = Math.max(1, Math.min(MAX_IN_FLIGHT.apart, updateConnections - shared - individual))
    return { shared, individual, apart }[kind]
  }

  #dispatch(): void {
    const pending = this.#pending
    pending.isIndividual = this.#repository.table().isDistributed
    // First, because their updates often are older than others of the same pets.
    this.#start('apart', () => pending.takeApart())
    this.#start('shared', () => pending.takeShared())
    this.#start('individual', () => pending.takeIndividual())
    this.#metrics.waitingUpdates.set(pending.size)
  }

  /** Sends batches of a kind until as many as may be are in flight, or none is left to take. */
  #start(kind: BatchKind, take: () => Batch | undefined): void {
    for (let left = this.#limit(kind) - this.#count(kind); left > 0; left--) {
      const batch = take()
      if (batch === undefined) return
      void this.#send(batch)
    }
  }

  async #send(batch: Batch): Promise<void> {
    const { updates, skipsLocked, sentAt } = batch
    this.#inFlight.push(batch)
    this.#batchSize = updates.length
    this.#metrics.batches.observe(updates.length)
    const serve = () => this.#repository.setQuantities(updates, skipsLocked)
    const contexts = updates.flatMap(({ context }) => context ?? [])
    const result = await (this.#tracer?.run(contexts, serve) ?? serve())
    const undecided = result.kind === 'made' ? await settleMade(batch, result) : []
    const isQueuedAgain = result.kind === 'locked' || undecided.length > 0
    // A trigger may give up a lock at once.
    if (batch.kind === 'individual' && isQueuedAgain)
      await setTimeout(Math.max(0, sentAt + this.#times.retry - performance.now()))
    this.#inFlight = this.#inFlight.filter((other) => other !== batch)
    if (result.kind === 'made') this.#pending.onMade(batch, undecided)
    else if (result.kind === 'locked') this.#pending.onLocked(batch)
    else if (result.kind === 'rejected') this.#pending.onRejected(batch, result.error)
    else this.#pending.onFailed(batch, result.error)
    // What is sent again must not be late. Without such updates, the timer is enough.
    if (isQueuedAgain || result.kind === 'rejected') this.#check()
    else this.#dispatch()
  }

  #check(): void {
    const now = performance.now()
    this.#pending.rejectLate(now - this.#times.wait)
    for (const batch of this.#inFlight) {
      if (now - batch.sentAt <= this.#times.slow) continue
      if (!batch.isSlow) this.#pending.onSlow(batch)
      // It moves to those apart, as soon as there is a place among them.
      const isShared = batch.kind === 'shared' && !this.#pending.isIndividual
      if (isShared && this.#count('apart') < this.#limit('apart')) batch.kind = 'apart'
    }
    this.#dispatch()
    // The timer is stopped only here: otherwise a single caller would start and stop it with each update.
    if (!this.#pending.isEmpty) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }
}
