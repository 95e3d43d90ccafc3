import { setImmediate } from 'node:timers/promises'

/**
 * Coalesces reads: at most one is in flight, and a caller joins only a read that has not started, so its result is never
 * older than its request. If a read fails, callers that wait for the next read fail with the same error, because their read
 * would probably take as long to fail. `onCoalesced` is called for every caller that joins another caller's read.
 */
export function coalesceReads<T>(read: () => Promise<T>, onCoalesced: () => void): () => Promise<T> {
  let running: Promise<T> | undefined
  let next: Promise<T> | undefined

  const readNext = async (): Promise<T> => {
    try {
      await running
      // Lets requests that arrive later in the same event-loop iteration join, too.
      await setImmediate()
    } finally {
      next = undefined
    }
    const reading = read().finally(() => {
      running = undefined
    })
    running = reading
    return reading
  }

  return () => {
    if (next === undefined) next = readNext()
    else onCoalesced()
    return next
  }
}
