import { setImmediate } from 'node:timers/promises'

/**
 * Coalesces reads: at most one is in flight, and a caller joins only a read that has not started, so its result is never
 * older than its request. If a read fails, the callers that wait for it to end fail with it, because another read would
 * take as long to fail. `onCoalesced` is called for every caller that joins the read of another.
 */
export function coalesceReads<T>(
  read: () => Promise<T>,
  onCoalesced: () => void = () => {},
): () => Promise<T> {
  let running: Promise<T> | undefined
  let next: Promise<T> | undefined

  const readNext = async (): Promise<T> => {
    try {
      await running
      // Requests that arrive later in the same event-loop iteration join, too.
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
