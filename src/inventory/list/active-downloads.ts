import type { ServerResponse } from 'node:http'
import { setTimeout } from 'node:timers/promises'
import type { Representation } from './snapshot.ts'

export interface ReadersOptions {
  /** How many bytes of superseded snapshots may be kept for those who are still being sent them. */
  readonly budget: number
  /** How long slow readers of a superseded snapshot may hold up the next one, in milliseconds. */
  readonly patience: number
}

/** Snapshots below this size, in bytes, are not worth being counted. */
const NEGLIGIBLE = 65_536

/** How often to look whether readers have ended, in milliseconds. */
const LOOK_INTERVAL = 10

/** Who is being sent which snapshot. It bounds the memory that slow readers can hold, however many they are. */
export class Readers {
  readonly #responses = new Map<Representation, Set<ServerResponse>>()
  readonly #options: ReadersOptions

  constructor(options: ReadersOptions = { budget: 24 * 1024 * 1024, patience: 5000 }) {
    this.#options = options
  }

  /** Counts a response as a reader of the snapshot until it has ended. */
  add(snapshot: Representation, response: ServerResponse): void {
    if (snapshot.size < NEGLIGIBLE) return
    const responses = this.#responses.get(snapshot) ?? new Set()
    this.#responses.set(snapshot, responses.add(response))
    response.once('close', () => this.#forget(snapshot, response))
  }

  /** How many are being sent the snapshot. */
  count(snapshot: Representation): number {
    return this.#responses.get(snapshot)?.size ?? 0
  }

  /**
   * Waits until there is room for one more snapshot beside the current one. The readers of the oldest are cut off
   * where they take too long: their response stays visibly incomplete, and they can ask again.
   */
  async makeRoom(current: Representation | undefined): Promise<void> {
    const deadline = performance.now() + this.#options.patience
    for (;;) {
      const superseded = this.#superseded(current)
      if (sizeBeside(current, superseded) <= this.#options.budget) return
      if (performance.now() < deadline) {
        await setTimeout(LOOK_INTERVAL)
      } else {
        const [oldest] = superseded
        for (const { req } of (oldest && this.#responses.get(oldest)) ?? []) req.socket.destroy()
      }
    }
  }

  #superseded(current: Representation | undefined): Representation[] {
    for (const [snapshot, responses] of this.#responses) {
      for (const response of responses) {
        if (hasEnded(response)) this.#forget(snapshot, response)
      }
    }
    return [...this.#responses.keys()].filter((snapshot) => snapshot !== current)
  }

  #forget(snapshot: Representation, response: ServerResponse): void {
    const responses = this.#responses.get(snapshot)
    responses?.delete(response)
    if (responses?.size === 0) this.#responses.delete(snapshot)
  }
}

/**
 * Not told by the event alone: a response that waits behind others of its connection has none when that breaks, and one
 * that ended before it was counted has had it.
 */
function hasEnded(response: ServerResponse): boolean {
  return response.closed || response.req.socket.destroyed
}

/** The bytes that superseded snapshots keep in memory; what they share with others or the current one counts once. */
function sizeBeside(current: Representation | undefined, superseded: readonly Representation[]): number {
  const seen = new Set(current?.chunks)
  let size = 0
  for (const { chunks } of superseded) {
    for (const chunk of chunks) {
      if (!seen.has(chunk)) size += chunk.length
      seen.add(chunk)
    }
  }
  return size
}
