import { setImmediate } from 'node:timers/promises'

/** Maximum bytes of a snapshot that all its downloads together write in one event-loop iteration. */
const MAX_BYTES_PER_ITERATION = 1_048_576

/** Minimum share of a single download in these bytes. */
const MIN_SHARE_BYTES = 65_536

/**
 * Yields the chunks in shares, at most one per event-loop iteration. Otherwise a client that reads as fast as this process
 * writes would get the whole list in one iteration, while all other requests wait. Concurrent downloads divide the bytes of
 * an iteration among them, so that more downloads do not make it longer.
 *
 * @param downloads returns the number of downloads of the snapshot that are active now
 */
export async function* inShares(chunks: readonly Buffer[], downloads: () => number): AsyncGenerator<Buffer> {
  let left = shareOf(downloads())
  for (const chunk of chunks) {
    for (let at = 0, end = 0; at < chunk.length; at = end) {
      if (left === 0) {
        await setImmediate()
        left = shareOf(downloads())
      }
      end = Math.min(chunk.length, at + left)
      yield chunk.subarray(at, end)
      left -= end - at
    }
  }
}

/** Returns the bytes that one of several downloads may write in an iteration. */
function shareOf(downloads: number): number {
  return Math.max(MIN_SHARE_BYTES, Math.ceil(MAX_BYTES_PER_ITERATION / Math.max(1, downloads)))
}
