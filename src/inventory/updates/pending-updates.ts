import type { Context } from '@opentelemetry/api'
import type { QuantityUpdate } from '../repository.ts'
import type { InventoryItem } from '../schemas.ts'
import type { InventoryStatistics } from '../statistics.ts'

/** An update whose caller waits for its outcome. */
export interface Update extends QuantityUpdate {
  /** When it arrived, by `performance.now()`. */
  readonly arrivedAt: number
  /** The request, where requests are traced. */
  readonly context: Context | undefined
  readonly resolve: (item: InventoryItem | undefined) => void
  readonly reject: (error: unknown) => void
}

/** The most pets in one statement. */
export const MAX_BATCH_SIZE = 500

/** What the updates of a pet wait for; their callers are told, if it takes too long. */
export type WaitReason = 'statement' | 'row lock' | 'table lock'

/**
 * All updates of one pet that have no outcome yet, oldest first. There is one of these per pet, and new updates are only
 * ever added to its end, so no update can overtake an older one, however often that one is retried.
 */
export class PendingUpdates {
  readonly petId: bigint
  state: 'ready' | 'in flight' | 'locked' = 'ready'
  waitsFor: WaitReason = 'statement'
  /** The most pets in the next statement with this one. A refused batch halves it, so that one bad update is isolated. */
  batchLimit = MAX_BATCH_SIZE
  /** Whether PostgreSQL left the entry as it was, without saying why. */
  wasPassedOver = false
  /** The updates that the statement in flight decides: the last of them is written, the others are superseded by it. */
  inFlight: readonly Update[] = []
  /** Whether the last statement has decided, and not been refused. */
  hadItsTurn = false
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

  /** The update that is written: the newest of those in flight. */
  get written(): Update | undefined {
    return this.inFlight.at(-1)
  }

  add(update: Update): void {
    this.#waiting.push(update)
    this.#statistics.waitingUpdates++
  }

  /**
   * Moves the oldest updates in flight that one statement can decide: all up to the first with a condition, or that one
   * alone, as it must see what those before it have made of the entry.
   */
  take(): void {
    const conditional = this.#waiting.findIndex(({ condition }) => condition !== undefined)
    this.inFlight = this.#waiting.splice(
      0,
      conditional === -1 ? this.#waiting.length : Math.max(1, conditional),
    )
    this.#statistics.waitingUpdates -= this.inFlight.length
    this.state = 'in flight'
    this.hadItsTurn = false
  }

  /** Makes the updates in flight the oldest that wait: their statement has changed nothing. */
  putBack(state: 'ready' | 'locked'): void {
    this.#waiting.unshift(...this.inFlight)
    this.#statistics.waitingUpdates += this.inFlight.length
    this.inFlight = []
    this.state = state
  }

  /** The updates in flight have their outcome. */
  finish(): void {
    this.inFlight = []
    this.state = 'ready'
    this.hadItsTurn = true
    this.waitsFor = 'statement'
    this.batchLimit = MAX_BATCH_SIZE
    this.wasPassedOver = false
  }

  /** Removes the updates that wait and arrived before that time; returns them. */
  removeBefore(time: number): readonly Update[] {
    const inTime = this.#waiting.findIndex(({ arrivedAt }) => arrivedAt >= time)
    const late = this.#waiting.splice(0, inTime === -1 ? this.#waiting.length : inTime)
    this.#statistics.waitingUpdates -= late.length
    return late
  }
}
