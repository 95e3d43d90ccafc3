import { setImmediate } from 'node:timers/promises'

/**
 * Makes one read serve everyone who waits: at most one is under way, and a caller joins only one that has not begun.
 * So what a caller gets was read after it asked, as if it had read by itself.
 */
export function joinReads<T>(read: () => Promise<T>): () => Promise<T> {
  let running: Promise<unknown> = Promise.resolve()
  let next: Promise<T> | undefined
  const readNext = async (): Promise<T> => {
    // A failure of the read before is the affair of those who waited for it.
    await running.catch(() => {})
    // All requests that have arrived by now join, those behind in the same turn of the event loop too.
    await setImmediate()
    next = undefined
    const reading = read()
    running = reading
    return reading
  }
  return () => {
    next ??= readNext()
    return next
  }
}
