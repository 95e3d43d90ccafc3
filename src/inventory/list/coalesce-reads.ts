import { setImmediate } from 'node:timers/promises'

/**
 * Makes one read serve everyone who waits: at most one is under way, and a caller joins only one that has not begun.
 * So what a caller gets was read after it asked, as if it had read by itself. When a read fails, those who wait for it
 * to end fail with it: they would wait as long again for the same. `onJoin` is told of every caller whom another's read
 * serves.
 */
export function joinReads<T>(read: () => Promise<T>, onJoin: () => void = () => {}): () => Promise<T> {
  let running: Promise<T> | undefined
  let next: Promise<T> | undefined

  const readNext = async (): Promise<T> => {
    try {
      await running
      // All requests that have arrived by now join, those behind in the same turn of the event loop too.
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
    else onJoin()
    return next
  }
}
