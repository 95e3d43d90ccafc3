import type { ServerResponse } from 'node:http'
import { setTimeout } from 'node:timers/promises'
import type { Representation } from './snapshot.ts'

export interface ActiveDownloadsOptions {
  /** Maximum memory that downloads of superseded snapshots may keep in use. */
  readonly budgetBytes: number
  /** How long slow downloads of a superseded snapshot may delay the next one. */
  readonly timeoutMs: number
}

/** Snapshots below this size are not counted. */
const MIN_COUNTED_BYTES = 65_536

/** The interval between two checks whether downloads have ended. */
const POLL_INTERVAL_MS = 10

/** The downloads in progress and their snapshots. It bounds the memory that slow clients can hold, however many they are. */
export class ActiveDownloads {
  readonly #responses = new Map<Representation, Set<ServerResponse>>()
  readonly #options: ActiveDownloadsOptions

  constructor(options: ActiveDownloadsOptions = { budgetBytes: 24 * 1024 * 1024, timeoutMs: 5000 }) {
    this.#options = options
  }

  /** Counts a response as a download of the snapshot until it has ended. */
  add(snapshot: Representation, response: ServerResponse): void {
    if (snapshot.size < MIN_COUNTED_BYTES) return
    const responses = this.#responses.get(snapshot) ?? new Set()
    this.#responses.set(snapshot, responses.add(response))
    response.once('close', () => this.#forget(snapshot, response))
  }

  /** Returns the number of downloads of the snapshot. */
  count(snapshot: Representation): number {
    return this.#responses.get(snapshot)?.size ?? 0
  }

  /**
   * Waits until there is memory for one more snapshot beside the current one. After `timeoutMs`, downloads of the oldest
   * snapshot are cut off: the client sees an incomplete response and can repeat the request.
   */
  async waitForMemory(current: Representation | undefined): Promise<void> {
    const deadline = performance.now() + this.#options.timeoutMs
    for (;;) {
      const superseded = this.#superseded(current)
      if (sizeBeside(current, superseded) <= this.#options.budgetBytes) return
      if (performance.now() < deadline) {
        await setTimeout(POLL_INTERVAL_MS)
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
 * Whether a response has ended. The event `close` does not suffice: it is not emitted for a response behind others on a
 * connection that breaks, and it came too early for a response that had ended before it was counted.
 */
function hasEnded(response: ServerResponse): boolean {
  return response.closed || response.req.socket.destroyed
}

/** The bytes that superseded snapshots keep in memory. Pieces that they share with each other or the current one count once. */
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
