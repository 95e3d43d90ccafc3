import type { Context } from '@opentelemetry/api'
import type { TransientMap } from '../../collections/transient-map.ts'
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

/** Where pets wait whose updates may share a statement; see `Backlog` in backlogs.ts. */
export interface WaitingPets {
  readonly pets: TransientMap<PendingUpdates, true>
}

/** What a pet needs to know of the others; see `Backlogs`. */
export interface AllPets {
  readonly statistics: InventoryStatistics
  readonly pets: TransientMap<bigint, PendingUpdates>
  readonly locked: WaitingPets
  readonly areSeparated: boolean
  of(update: Update): WaitingPets
}

/**
 * All updates of one pet that have no outcome yet. At most one of them is in flight, and it is the oldest of its backlog, so no
 * update overtakes an older one of its API key, even if that one is retried several times.
 */
export class PendingUpdates {
  readonly petId: bigint
  /** Whether another transaction has locked the row, so that the update in flight or the next one is sent individually. */
  isLocked = false
  /** Whether the last statement of the update in flight, or of the next one, did not get a lock: on the row or on the table. */
  waitsForLock = false
  readonly #backlogs: AllPets
  #inFlight: Update | undefined
  #waiting: Update[] = []

  constructor(petId: bigint, backlogs: AllPets) {
    this.petId = petId
    this.#backlogs = backlogs
  }

  /** The update in flight, if any. */
  get inFlight(): Update | undefined {
    return this.#inFlight
  }

  add(update: Update): void {
    this.#waiting.push(update)
    this.#backlogs.statistics.waitingUpdates++
    if (this.#inFlight === undefined) this.#backlogOf(update).pets.set(this, true)
  }

  /** Makes the oldest waiting update of the backlog the one in flight. Returns false if there is none, or if another one is. */
  take(backlog: WaitingPets): boolean {
    if (this.#inFlight !== undefined) return false
    backlog.pets.delete(this)
    const index = this.#waiting.findIndex((update) => this.#backlogOf(update) === backlog)
    if (index === -1) {
      this.enqueue()
      return false
    }
    this.#inFlight = this.#waiting.splice(index, 1)[0]
    this.#backlogs.statistics.waitingUpdates--
    return true
  }

  /** Makes the update in flight the first waiting one again. Call it if its statement has changed nothing. */
  putBack(): void {
    if (this.#inFlight === undefined) return
    this.#waiting.unshift(this.#inFlight)
    this.#backlogs.statistics.waitingUpdates++
    this.#inFlight = undefined
    this.enqueue()
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
    const late = this.#waiting.filter(({ arrivedAt }) => arrivedAt < time)
    if (late.length === 0) return
    this.#waiting = this.#waiting.filter(({ arrivedAt }) => arrivedAt >= time)
    this.#backlogs.statistics.waitingUpdates -= late.length
    for (const update of late) update.reject(this.#late())
    this.enqueue()
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
    this.enqueue()
    return update
  }

  /** Unless an update is in flight, goes to the end of the backlogs of the waiting ones, except those that it is in. */
  enqueue(): void {
    if (this.#inFlight !== undefined) return
    for (const update of this.#waiting) {
      this.#backlogOf(update).pets.set(this, true)
      if (!this.#backlogs.areSeparated) return
    }
    // An instance that is left in a backlog may have a successor.
    if (this.#waiting.length === 0 && this.#backlogs.pets.get(this.petId) === this)
      this.#backlogs.pets.delete(this.petId)
  }

  #backlogOf(update: Update): WaitingPets {
    return this.isLocked ? this.#backlogs.locked : this.#backlogs.of(update)
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
