import type { Context } from '@opentelemetry/api'
import type { InventoryItem } from '../schemas.ts'
import type { InventoryStatistics } from '../statistics.ts'
import type { QuantityUpdate } from './quantity-update.ts'

/** An update whose caller waits for its outcome. */
export interface Update extends QuantityUpdate {
  /** When it arrived, by `performance.now()`. */
  readonly arrivedAt: number
  /** The trace context of the request, if tracing is on. */
  readonly context: Context | undefined
  readonly resolve: (item: InventoryItem | undefined) => void
  readonly reject: (error: unknown) => void
}

/** Maximum pets in one statement. */
export const MAX_BATCH_SIZE = 500

/** What the updates of a pet are waiting for. The message of a 503 after a long wait depends on it. */
export type WaitReason = 'statement' | 'row lock' | 'table lock'

/**
 * All updates of one pet that have no outcome yet, oldest first. There is one instance per pet, and new updates are only added
 * at its end, so no update overtakes an older one, even if that one is retried several times.
 */
export class PendingUpdates {
  readonly petId: bigint
  state: 'ready' | 'in flight' | 'locked' = 'ready'
  waitsFor: WaitReason = 'statement'
  /** Maximum pets in the next batch with this one. A refused batch halves it, so that one bad update is isolated. */
  batchLimit = MAX_BATCH_SIZE
  /** Maximum updates that the next statement decides. A refusal of this pet alone halves it, for the same reason. */
  updateLimit = Number.POSITIVE_INFINITY
  /** Whether a statement has left the entry unchanged without an error. */
  wasPassedOver = false
  /** The updates that the statement in flight decides: it writes the last one, which supersedes the others. */
  inFlight: readonly Update[] = []
  /** Whether the last statement has decided the updates that were in flight. */
  wasDecided = false
  readonly #waiting: Update[] = []
  readonly #statistics: InventoryStatistics

  constructor(petId: bigint, statistics: InventoryStatistics) {
    this.petId = petId
    this.#statistics = statistics
  }

  get isEmpty(): boolean {
    return this.#waiting.length === 0 && this.inFlight.length === 0
  }

  /** The number of updates that are not in flight. */
  get waiting(): number {
    return this.#waiting.length
  }

  /** The newest update in flight, which the statement writes. */
  get written(): Update | undefined {
    return this.inFlight.at(-1)
  }

  add(update: Update): void {
    this.#waiting.push(update)
    this.#statistics.waitingUpdates++
  }

  /**
   * Moves the oldest waiting updates that one statement can decide to those in flight: all before the first one with a condition,
   * or only that one if it is the oldest, because its condition depends on what the earlier updates have written. At most
   * `updateLimit` are moved.
   */
  take(): void {
    const conditional = this.#waiting.findIndex(({ condition }) => condition !== undefined)
    const decidable = conditional === -1 ? this.#waiting.length : Math.max(1, conditional)
    this.inFlight = this.#waiting.splice(0, Math.min(decidable, this.updateLimit))
    this.#statistics.waitingUpdates -= this.inFlight.length
    this.state = 'in flight'
    this.wasDecided = false
  }

  /** Moves the updates in flight back to the front of the waiting ones. Call it if their statement has changed nothing. */
  putBack(state: 'ready' | 'locked'): void {
    this.#waiting.unshift(...this.inFlight)
    this.#statistics.waitingUpdates += this.inFlight.length
    this.inFlight = []
    this.state = state
  }

  /** Removes and returns the updates in flight that arrived before `time`. Call it if their statement has changed nothing. */
  removeInFlightBefore(time: number): readonly Update[] {
    const late = this.inFlight.filter(({ arrivedAt }) => arrivedAt < time)
    this.inFlight = this.inFlight.filter(({ arrivedAt }) => arrivedAt >= time)
    return late
  }

  /** Removes the updates in flight. Call it when each of them has its outcome. */
  finish(): void {
    this.inFlight = []
    this.state = 'ready'
    this.wasDecided = true
    this.waitsFor = 'statement'
    this.batchLimit = MAX_BATCH_SIZE
    this.updateLimit = Number.POSITIVE_INFINITY
    this.wasPassedOver = false
  }

  /** Removes and returns the waiting updates that arrived before `time` (`performance.now()`). */
  removeBefore(time: number): readonly Update[] {
    const inTime = this.#waiting.findIndex(({ arrivedAt }) => arrivedAt >= time)
    const late = this.#waiting.splice(0, inTime === -1 ? this.#waiting.length : inTime)
    this.#statistics.waitingUpdates -= late.length
    return late
  }
}
