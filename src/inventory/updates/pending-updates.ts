import type { Context } from '@opentelemetry/api'
import type { InventoryItem } from '../schemas.ts'
import type { InventoryStatistics } from '../statistics.ts'
import type { QuantityUpdate } from './quantity-update.ts'

/** An update whose caller waits for its outcome. */
export interface Update extends QuantityUpdate {
  /** When it arrived, by `performance.now()`. */
  readonly arrivedAt: number
  /** The request, where requests are traced. */
  readonly context: Context | undefined
  readonly resolve: (item: InventoryItem | undefined) => void
  readonly reject: (error: unknown) => void
}

/** Maximum pets in one statement. */
export const MAX_BATCH_SIZE = 500

/** What the updates of a pet wait for. The 503 after too long a wait says it. */
export type WaitReason = 'statement' | 'row lock' | 'table lock'

/**
 * All updates of one pet that have no outcome yet, oldest first. There is one of these per pet, and new updates are only
 * ever added to its end, so no update can overtake an older one, however often that one is retried.
 */
export class PendingUpdates {
  readonly petId: bigint
  state: 'ready' | 'in flight' | 'locked' = 'ready'
  waitsFor: WaitReason = 'statement'
  /** Maximum pets in the next batch with this one. A refused batch halves it, so that one bad update is isolated. */
  batchLimit = MAX_BATCH_SIZE
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

  /** How many updates wait for their statement. */
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
   * Moves the oldest updates that one statement can decide to those in flight: all up to the first with a condition, or only
   * that one, as its condition is about what the updates before it have written.
   */
  take(): void {
    const conditional = this.#waiting.findIndex(({ condition }) => condition !== undefined)
    this.inFlight = this.#waiting.splice(
      0,
      conditional === -1 ? this.#waiting.length : Math.max(1, conditional),
    )
    this.#statistics.waitingUpdates -= this.inFlight.length
    this.state = 'in flight'
    this.wasDecided = false
  }

  /** Moves the updates in flight back before those that wait. Their statement has changed nothing. */
  putBack(state: 'ready' | 'locked'): void {
    this.#waiting.unshift(...this.inFlight)
    this.#statistics.waitingUpdates += this.inFlight.length
    this.inFlight = []
    this.state = state
  }

  /** Removes the updates in flight. Each of them has its outcome. */
  finish(): void {
    this.inFlight = []
    this.state = 'ready'
    this.wasDecided = true
    this.waitsFor = 'statement'
    this.batchLimit = MAX_BATCH_SIZE
    this.wasPassedOver = false
  }

  /** Removes and returns the waiting updates that arrived before that time. */
  removeBefore(time: number): readonly Update[] {
    const inTime = this.#waiting.findIndex(({ arrivedAt }) => arrivedAt >= time)
    const late = this.#waiting.splice(0, inTime === -1 ? this.#waiting.length : inTime)
    this.#statistics.waitingUpdates -= late.length
    return late
  }
}
