import type { Context } from '@opentelemetry/api'
import { serviceUnavailable } from '../../contract/errors.ts'
import type { InventoryItem } from '../entry/schemas.ts'
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

/**
 * All updates of one pet that have no outcome yet, oldest first. There is one instance per pet, and at most one of its updates is
 * in flight, so no update overtakes an older one, even if that one is retried several times.
 */
export class PendingUpdates {
  readonly petId: bigint
  /** Whether another transaction has locked the row, so that the update in flight or the next one is sent individually. */
  isLocked = false
  /** Whether the last statement of the update in flight, or of the next one, did not get a lock: on the row or on the table. */
  waitsForLock = false
  #inFlight: Update | undefined
  readonly #waiting: Update[] = []
  readonly #statistics: InventoryStatistics
  readonly #onDecided: (pet: PendingUpdates) => void

  /** `onDecided` is called right before the caller of the update in flight gets its outcome. */
  constructor(petId: bigint, statistics: InventoryStatistics, onDecided: (pet: PendingUpdates) => void) {
    this.petId = petId
    this.#statistics = statistics
    this.#onDecided = onDecided
  }

  /** The update in flight, if any. */
  get inFlight(): Update | undefined {
    return this.#inFlight
  }

  /** The number of updates that are not in flight. */
  get waiting(): number {
    return this.#waiting.length
  }

  get isEmpty(): boolean {
    return this.#inFlight === undefined && this.#waiting.length === 0
  }

  add(update: Update): void {
    this.#waiting.push(update)
    this.#statistics.waitingUpdates++
  }

  /** Makes the oldest waiting update the one in flight. */
  take(): void {
    this.#inFlight = this.#waiting.shift()
    this.#statistics.waitingUpdates--
  }

  /** Makes the update in flight the first waiting one again. Call it if its statement has changed nothing. */
  putBack(): void {
    if (this.#inFlight === undefined) return
    this.#waiting.unshift(this.#inFlight)
    this.#inFlight = undefined
    this.#statistics.waitingUpdates++
  }

  /** Gives the caller of the update in flight the entry as stored, or undefined if there is none. */
  resolve(item: InventoryItem | undefined): void {
    this.#decide()?.resolve(item)
  }

  /** Gives the caller of the update in flight an error. */
  reject(error: unknown): void {
    this.#decide()?.reject(error)
  }

  /** Rejects the waiting updates that arrived before `time` (`performance.now()`). */
  rejectWaiting(time: number): void {
    for (
      let first = this.#waiting[0];
      first !== undefined && first.arrivedAt < time;
      first = this.#waiting[0]
    ) {
      this.#waiting.shift()
      this.#statistics.waitingUpdates--
      first.reject(this.#late())
    }
  }

  /**
   * Rejects the update in flight if it arrived before `time`; otherwise returns true. Call it if its statement has changed
   * nothing.
   */
  isInTime(time: number): boolean {
    const isInTime = this.#inFlight !== undefined && this.#inFlight.arrivedAt >= time
    if (!isInTime) this.reject(this.#late())
    return isInTime
  }

  #decide(): Update | undefined {
    const update = this.#inFlight
    this.#inFlight = undefined
    this.isLocked = false
    this.waitsForLock = false
    this.#onDecided(this)
    return update
  }

  #late(): Error {
    return this.waitsForLock
      ? unchanged('locked', 'Another transaction has locked the entry or the whole inventory.')
      : unchanged('late', 'The database is too busy.')
  }
}

function unchanged(cause: 'locked' | 'late', reason: string): Error {
  return serviceUnavailable(cause, `${reason} Nothing was changed. Try again shortly.`)
}
