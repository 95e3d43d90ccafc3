import type { ServerResponse } from 'node:http'
import { setTimeout } from 'node:timers/promises'
import { TransientMap } from '../../../collections/transient-map.ts'
import type { Representation } from '../serialized/serialized-list.ts'

export interface ActiveDownloadsOptions {
  /** Maximum memory that downloads of superseded lists may hold. */
  readonly budgetBytes: number
  /** How long slow downloads of superseded lists may delay lists. */
  readonly timeoutMs: number
}

export const downloadLimits: ActiveDownloadsOptions = { budgetBytes: 24 * 1024 * 1024, timeoutMs: 5000 }

/** Downloads of smaller lists are not tracked. */
const MIN_COUNTED_BYTES = 65_536

/** Lists wait for slow downloads again once none had to be closed for this long. */
const RECOVERY_MS = 60_000

/** Interval between checks for downloads that have ended. */
const POLL_INTERVAL_MS = 10

/** Tracks the downloads in progress. Limits the memory that slow clients can hold, regardless of their number. */
export class ActiveDownloads {
  readonly #responses = new TransientMap<Representation, Set<ServerResponse>>()
  /** Until when downloads are closed without a wait, in `performance.now()` time. */
  #closesAtOnceUntil = 0
  readonly #options: ActiveDownloadsOptions

  constructor(options: ActiveDownloadsOptions = downloadLimits) {
    this.#options = options
  }

  /** Tracks a response until it ends. */
  add(list: Representation, response: ServerResponse): void {
    if (list.size < MIN_COUNTED_BYTES || response.destroyed) return
    const responses = this.#responses.get(list) ?? new Set()
    this.#responses.set(list, responses.add(response))
    response.once('close', () => {
      if (responses.delete(response) && responses.size === 0) this.#responses.delete(list)
    })
  }

  /**
   * Waits until the superseded lists leave enough memory for a new one in addition to the current one. After `timeoutMs`, closes the
   * connections that download the oldest list: these clients see an incomplete response and can repeat the request. The next calls
   * do not wait, or a client that starts a download of each new list could delay every list.
   */
  async waitForMemory(current: Representation | undefined): Promise<void> {
    const deadline = performance.now() + this.#options.timeoutMs
    for (;;) {
      const [oldest, ...others] = Array.from(this.#responses, ([list]) => list).filter(
        (list) => list !== current,
      )
      if (oldest === undefined || sizeBeside(current, [oldest, ...others]) <= this.#options.budgetBytes)
        return
      const now = performance.now()
      if (now < deadline && now >= this.#closesAtOnceUntil) {
        await setTimeout(POLL_INTERVAL_MS)
        continue
      }
      this.#closesAtOnceUntil = now + RECOVERY_MS
      for (const { req } of this.#responses.get(oldest) ?? []) req.socket.destroy()
      this.#responses.delete(oldest)
    }
  }
}

/** Returns the bytes that only superseded lists hold. Shared buffers count once. */
function sizeBeside(current: Representation | undefined, superseded: readonly Representation[]): number {
  const seen = new Set(current?.buffers)
  let size = 0
  for (const { buffers } of superseded) {
    for (const buffer of buffers) {
      if (!seen.has(buffer)) size += buffer.length
      seen.add(buffer)
    }
  }
  return size
}
