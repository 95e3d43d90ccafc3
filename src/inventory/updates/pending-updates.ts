import { ok as assert } from 'node:assert'
import { nothingChanged } from '../../contract/api-error.ts'
import { findKey, KeyLimits, MAX_BATCH_SIZE } from './key-limits.ts'
import { PetQueues, type Trouble } from './pet-queues.ts'
import type { Update } from './quantity-update.ts'

/** How long after a lock timeout statements skip locked rows, so that none waits for each newly locked row. */
const AFTER_TIMEOUT_MS = 1000

/** Which updates share a statement: those of all keys; those of one key, which is apart; or none, because the pet has trouble. */
export type BatchKind = 'shared' | 'apart' | 'individual'

/** Updates of different pets in one statement. */
export interface Batch {
  /** A slow batch that was shared is apart. */
  kind: BatchKind
  isSlow: boolean
  readonly updates: readonly Update[]
  readonly skipsLocked: boolean
  /** By `performance.now()`. */
  readonly sentAt: number
  /** The key of updates that are apart and sent for the first time. */
  readonly key: string | undefined
}

/**
 * All updates without an outcome. `PetQueues` has the order of those of one pet, and `KeyLimits` the keys that are apart. An update is
 * queued until a batch takes it. While the batch is in flight, `onSlow` sets its keys apart; one of the other transitions ends it.
 */
export class PendingUpdates {
  /** Whether each update is a statement of its own. Then it can cause no trouble to those of other pets. */
  isIndividual = false
  readonly #pets = new PetQueues()
  readonly #keys = new KeyLimits()
  /** Updates of one key each that are sent again. For their pets, they are still in flight. */
  #retries: Update[][] = []
  #isTurnOfRetries = false
  /** When a statement had the last lock timeout, by `performance.now()`. */
  #timeoutAt = Number.NEGATIVE_INFINITY

  get isEmpty(): boolean {
    return this.#pets.isEmpty
  }

  /** Number of updates that are not in a statement. */
  get size(): number {
    return this.#retries.reduce((size, { length }) => size + length, this.#pets.size)
  }

  add(update: Update): void {
    this.#pets.add(update)
  }

  /** Takes the oldest update of each pet, unless its key is apart. */
  takeShared(): Batch | undefined {
    const limit = this.isIndividual ? 1 : MAX_BATCH_SIZE
    const updates = this.#pets.take(
      limit,
      (update, trouble) => !trouble && !this.#keys.isApart(findKey(update)),
    )
    return this.#toBatch('shared', updates)
  }

  /** Takes, by turns, updates that are sent again and those of a key that is apart, so that neither wait for all of the others. */
  takeApart(): Batch | undefined {
    this.#isTurnOfRetries = !this.#isTurnOfRetries
    const retry = this.#isTurnOfRetries ? this.#retries.shift() : undefined
    return this.#toBatch('apart', retry) ?? this.#takeKey() ?? this.#toBatch('apart', this.#retries.shift())
  }

  #takeKey(): Batch | undefined {
    if (this.#keys.areNone) return undefined
    const [first] = this.#pets.take(1, (update, trouble) => !trouble && this.#keys.mayBegin(findKey(update)))
    if (first === undefined) return undefined
    const key = findKey(first)
    const limit = this.#keys.begin(key) - 1
    const others = this.#pets.take(limit, (update, trouble) => !trouble && findKey(update) === key)
    return this.#toBatch('apart', [first, ...others], key)
  }

  /** Takes the oldest update of a pet that has trouble. */
  takeIndividual(): Batch | undefined {
    return this.#toBatch(
      'individual',
      this.#pets.take(1, (_, trouble) => trouble !== undefined),
    )
  }

  #toBatch(kind: BatchKind, updates: readonly Update[] = [], key?: string): Batch | undefined {
    if (updates.length === 0) return undefined
    const sentAt = performance.now()
    const skipsLocked = kind !== 'individual' && sentAt - this.#timeoutAt < AFTER_TIMEOUT_MS
    return { kind, isSlow: false, updates, skipsLocked, sentAt, key }
  }

  onSlow(batch: Batch): void {
    assert(!batch.isSlow, 'a batch becomes slow once')
    this.#restrict(batch, MAX_BATCH_SIZE)
    batch.isSlow = true
  }

  /** Settles the updates but the undecided ones, which have no outcome: they are queued again, and their pets have trouble. */
  onMade(batch: Batch, undecided: readonly Update[]): void {
    this.#end(batch)
    if (!batch.isSlow) this.#keys.relax(batch.updates)
    for (const update of batch.updates) {
      if (!undecided.includes(update)) this.#settle(update, batch)
      else this.#pets.requeue(update, batch.skipsLocked ? 'locked' : 'undecided')
    }
  }

  /** Nothing has changed. That a single update was locked says nothing about its key. */
  onLocked(batch: Batch): void {
    this.#timeoutAt = performance.now()
    const [first, ...others] = batch.updates
    if (others.length > 0) this.#retry(batch)
    else {
      this.#end(batch)
      if (first) this.#pets.requeue(first, 'locked')
    }
  }

  /** Nothing has changed, and a single update is to blame. */
  onRejected(batch: Batch, error: unknown): void {
    if (batch.updates.length > 1) this.#retry(batch)
    else {
      this.#restrict(batch, 1)
      this.onFailed(batch, error)
    }
  }

  onFailed(batch: Batch, error: unknown): void {
    this.#end(batch)
    for (const update of batch.updates) {
      update.reject(error)
      this.#settle(update, batch)
    }
  }

  #settle(update: Update, { isSlow, updates }: Batch): void {
    this.#pets.settle(update, isSlow && updates.length === 1 ? 'slow' : undefined)
  }

  /** Sends updates again, those of one key together, a quarter of the batch at a time. */
  #retry(batch: Batch): void {
    const limit = Math.ceil(batch.updates.length / 4)
    this.#end(batch)
    this.#restrict(batch, limit)
    for (const key of new Set(batch.updates.map(findKey))) {
      const updates = batch.updates.filter((update) => findKey(update) === key)
      while (updates.length > 0) this.#retries.push(updates.splice(0, limit))
    }
  }

  #restrict({ updates, isSlow }: Batch, limit: number): void {
    if (this.isIndividual) return
    // A key that is no longer apart, though this batch has set it apart, has had fast updates since.
    const restricted = isSlow ? updates.filter((update) => this.#keys.isApart(findKey(update))) : updates
    this.#keys.restrict(restricted, limit)
  }

  #end({ key }: Batch): void {
    if (key !== undefined) this.#keys.end(key)
  }

  /** Rejects the updates that arrived before `time` (`performance.now()`), except those in a statement. */
  rejectLate(time: number): void {
    this.#pets.removeLate(time, rejectLate)
    const late = this.#retries.flat().filter(({ arrivedAt }) => arrivedAt < time)
    this.#retries = this.#retries.map((updates) => updates.filter((update) => !late.includes(update)))
    this.#retries = this.#retries.filter(({ length }) => length > 0)
    for (const update of late) {
      rejectLate(update)
      this.#pets.settle(update)
    }
  }
}

function rejectLate({ reject }: Update, trouble?: Trouble): void {
  reject(
    trouble === 'locked'
      ? nothingChanged('locked', 'Another transaction has locked the entry or the whole inventory.')
      : nothingChanged('late', 'The database is too busy.'),
  )
}
