import { setImmediate } from 'node:timers'
import type { Context } from '@opentelemetry/api'
import type { InventoryItem } from '../entry/schemas.ts'
import type { InventoryStatistics } from '../statistics.ts'
import { type Backlog, Backlogs } from './backlogs.ts'
import { BatchSender } from './batch.ts'
import type { QuantityUpdate, Update } from './quantity-update.ts'
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

/**
 * Batches in flight: PostgreSQL executes one while the other is in transit. With more, batches are smaller, and each update takes
 * more CPU time.
 */
const BATCHES = 2

/**
 * Sets quantities. Updates that arrive while others are in flight are sent together, as one statement and one commit: the oldest
 * update of each pet. This class decides when a batch is sent; `BatchSender` sends it and decides its updates.
 *
 * At most two batches are in flight, or as many as there are connections if Citus distributes the table. Pets whose row is locked,
 * and keys whose updates PostgreSQL has refused, share one or two other connections, so that they never delay batches; see
 * `Backlogs`.
 *
 * Updates that have waited for `UpdateTimes.wait` are rejected with 503, except those in flight.
 */
export class UpdateQueue {
  readonly #repository: UpdateRepository
  readonly #tracer: BatchTracer | undefined
  readonly #times: UpdateTimes
  readonly #sender: BatchSender
  readonly #backlogs: Backlogs
  /** Statements in flight that are no batches. */
  #retries = 0
  readonly #maxRetries: number
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
    this.#backlogs = new Backlogs(statistics)
    this.#tracer = tracer
    this.#times = times
    this.#sender = new BatchSender(repository, this.#backlogs, times.wait)
    this.#maxRetries = repository.updateConnections < 6 ? 1 : 2
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
      // Not `...update`: V8 takes microseconds to add properties to a copy.
      this.#backlogs.add({ petId, quantity, condition, caller, arrivedAt, context, resolve, reject })
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
    const isSingle = this.#backlogs.batches.inFlight === 0 && this.#batchSize <= 1
    const defer = isSingle ? queueMicrotask : setImmediate
    defer(() => {
      this.#isScheduled = false
      this.#dispatch()
    })
  }

  #dispatch(): void {
    const { batches } = this.#backlogs
    const isDistributed = this.#repository.maxBatchSize() === 1
    const maxBatches = isDistributed ? this.#repository.updateConnections - this.#maxRetries : BATCHES
    while (batches.inFlight < maxBatches && this.#start(batches));
    while (
      this.#retries < this.#maxRetries &&
      this.#backlogs.retries().some((backlog) => this.#start(backlog))
    );
  }

  /** Sends the next statement of a backlog. Returns whether there is one. */
  #start(backlog: Backlog): boolean {
    const updates = this.#backlogs.take(backlog, this.#repository.maxBatchSize())
    if (updates.length > 0) void this.#send(updates, backlog)
    return updates.length > 0
  }

  async #send(updates: readonly Update[], backlog: Backlog): Promise<void> {
    const retries = backlog === this.#backlogs.batches ? 0 : 1
    this.#retries += retries
    backlog.inFlight++
    backlog.lastSentAt = performance.now()
    this.#batchSize = updates.length
    const send = (): Promise<readonly Update[]> => this.#sender.send(updates)
    const contexts = updates.flatMap(({ context }) => context ?? [])
    const undecided = await (this.#tracer?.run(contexts, send) ?? send())
    for (const update of undecided) this.#backlogs.putBack(update)
    backlog.inFlight--
    this.#retries -= retries
    this.#dispatch()
  }

  #check(): void {
    this.#backlogs.rejectWaiting(performance.now() - this.#times.wait)
    this.#dispatch()
    // The timer is stopped only here: otherwise a single caller would start and stop it with each update.
    if (!this.#backlogs.isEmpty) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }
}
