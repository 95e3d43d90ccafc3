import type { Context } from '@opentelemetry/api'
import { TransientMap } from '../../collections/transient-map.ts'
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

/** Pets with an update that can be sent, longest waiting first. */
export type Lane = TransientMap<PendingUpdates, true>

/** Updates without an outcome that may share a statement. */
export class Backlog {
  /** All pets that have one. Those without an update in flight are in one of the lanes. */
  readonly pets = new TransientMap<bigint, PendingUpdates>()
  readonly ready: Lane = new TransientMap()
  /** The pets whose row another transaction has locked, those of every backlog. */
  readonly locked: Lane
  readonly statistics: InventoryStatistics
  /** Maximum number of updates in a statement. */
  limit = Number.POSITIVE_INFINITY

  constructor(statistics: InventoryStatistics, locked: Lane = new TransientMap()) {
    this.statistics = statistics
    this.locked = locked
  }
}

/**
 * All updates of one pet in a backlog that have no outcome yet, oldest first. At most one of them is in flight, so no update
 * overtakes an older one, even if that one is retried several times.
 */
export class PendingUpdates {
  readonly petId: bigint
  /** Whether another transaction has locked the row, so that the update in flight or the next one is sent individually. */
  isLocked = false
  /** Whether the last statement of the update in flight, or of the next one, did not get a lock: on the row or on the table. */
  waitsForLock = false
  /** The largest statement that the update in flight, or the next one, may be part of, as PostgreSQL has refused larger ones. */
  maxBatchSize = Number.POSITIVE_INFINITY
  readonly #backlog: Backlog
  #lane: Lane | undefined
  #inFlight: Update | undefined
  #waiting: Update[] = []

  constructor(petId: bigint, backlog: Backlog) {
    this.petId = petId
    this.#backlog = backlog
  }

  /** The update in flight, if any. */
  get inFlight(): Update | undefined {
    return this.#inFlight
  }

  /** The name of the API key of the update in flight, or of the next one. */
  get key(): string {
    return keyOf(this.#inFlight ?? this.#waiting[0])
  }

  /** Whether one of the updates was made with the API key of this name. */
  has(key: string): boolean {
    return [this.#inFlight, ...this.#waiting].some((update) => update && keyOf(update) === key)
  }

  add(update: Update): void {
    this.#waiting.push(update)
    this.#backlog.statistics.waitingUpdates++
    if (this.#inFlight === undefined && this.#lane === undefined) this.#enqueue()
  }

  /** Makes the oldest waiting update the one in flight. */
  take(): void {
    this.#leaveLane()
    this.#inFlight = this.#waiting.shift()
    this.#backlog.statistics.waitingUpdates--
  }

  /** Makes the update in flight the first waiting one again. Call it if its statement has changed nothing. */
  putBack(): void {
    if (this.#inFlight === undefined) return
    this.#waiting.unshift(this.#inFlight)
    this.#inFlight = undefined
    this.#backlog.statistics.waitingUpdates++
    this.#enqueue()
  }

  /** Puts the update in flight back, and moves it to another backlog, with all others of its API key. */
  moveTo(backlog: Backlog, maxBatchSize: number): void {
    this.maxBatchSize = maxBatchSize
    const { key } = this
    this.putBack()
    if (backlog === this.#backlog) return
    const moved = new PendingUpdates(this.petId, backlog)
    moved.maxBatchSize = maxBatchSize
    for (const update of this.#waiting) if (keyOf(update) === key) moved.add(update)
    const others = this.#waiting.filter((update) => keyOf(update) !== key)
    this.#backlog.statistics.waitingUpdates -= this.#waiting.length - others.length
    this.#waiting = others
    this.maxBatchSize = Number.POSITIVE_INFINITY
    this.#enqueue()
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
    while (this.#waiting[0] !== undefined && this.#waiting[0].arrivedAt < time) {
      this.#waiting.shift()?.reject(this.#late())
      this.#backlog.statistics.waitingUpdates--
    }
    if (this.#inFlight === undefined && this.#waiting.length === 0) this.#enqueue()
  }

  /**
   * Rejects the update in flight if it arrived before `time`; otherwise returns true. Call it if its statement has changed
   * nothing. The row stays locked, if it was.
   */
  isInTime(time: number): boolean {
    const isInTime = this.#inFlight !== undefined && this.#inFlight.arrivedAt >= time
    if (!isInTime) this.#takeDecided()?.reject(this.#late())
    return isInTime
  }

  #decide(): Update | undefined {
    this.isLocked = false
    this.waitsForLock = false
    return this.#takeDecided()
  }

  #takeDecided(): Update | undefined {
    const update = this.#inFlight
    this.#inFlight = undefined
    this.maxBatchSize = Number.POSITIVE_INFINITY
    this.#enqueue()
    return update
  }

  /** Goes to the end of the lane for the next update, or leaves the backlog if there is none. */
  #enqueue(): void {
    const { pets, ready, locked } = this.#backlog
    this.#leaveLane()
    if (this.#waiting.length === 0) {
      pets.delete(this.petId)
      return
    }
    pets.set(this.petId, this)
    this.#lane = this.isLocked ? locked : ready
    this.#lane.set(this, true)
  }

  #leaveLane(): void {
    this.#lane?.delete(this)
    this.#lane = undefined
  }

  #late(): Error {
    return this.waitsForLock
      ? unchanged('locked', 'Another transaction has locked the entry or the whole inventory.')
      : unchanged('late', 'The database is too busy.')
  }
}

function keyOf(update: Update | undefined): string {
  return update?.caller?.key?.name ?? ''
}

function unchanged(cause: 'locked' | 'late', reason: string): Error {
  return serviceUnavailable(cause, `${reason} Nothing was changed. Try again shortly.`)
}
