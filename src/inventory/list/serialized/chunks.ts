import { hash } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'

/**
 * Maximum number of entries in a chunk. A chunk is small enough to be copied and hashed at each change, and large enough that
 * sending a list in chunks takes no longer than sending it as one buffer.
 */
export const ENTRIES_PER_CHUNK = 1024

/** Maximum chunks to change in one event-loop iteration. Each takes about 0.1 ms. */
const CHANGES_PER_ITERATION = 8

/** The start of each entry. It cannot occur elsewhere, because quotes are escaped within JSON strings. */
const ENTRY_START = '{"petId":'

/**
 * Consecutive entries of a list: `ENTRIES_PER_CHUNK` of them, or fewer in the last chunk. So equal lists consist of equal chunks, whether
 * they were read in full or made from changes. A chunk is immutable, and lists share those that they have in common.
 */
export interface Chunk {
  /** The petId of the first entry. */
  readonly firstId: bigint
  /** Number of entries. */
  readonly count: number
  /**
   * The JSON text of the entries, each preceded by a comma, or by the opening bracket if it is the first of the list. With a
   * closing bracket at the end, the bytes of all chunks are the JSON text of the list.
   */
  readonly bytes: Buffer
  /** The SHA-256 of the bytes, in base64. */
  readonly digest: string
}

/**
 * Returns the chunk of these entries.
 *
 * @param text the JSON texts of the entries, separated by commas
 * @param index index of the chunk in its list
 * @param former the chunk that it replaces; returned if both are equal, so that data cached for it stays in use
 */
export function makeChunk(text: string, count: number, index: number, former: Chunk | undefined): Chunk {
  const bytes = Buffer.from(`${index === 0 ? '[' : ','}${text}`)
  const digest = hash('sha256', bytes, 'base64')
  return former?.digest === digest ? former : { firstId: readPetId(text), count, bytes, digest }
}

/**
 * Returns the chunks of the list after the changes, each of which replaces the entry with the same petId. Returns undefined if there is
 * no such entry: then the list must be read again.
 *
 * @param lines the JSON texts of the changed entries, in ascending petId, one per line
 */
export async function withChanges(chunks: readonly Chunk[], lines: string): Promise<Chunk[] | undefined> {
  const changes = lines.split('\n')
  const result: Chunk[] = []
  let next = 0
  let changed = 0
  for (const [index, chunk] of chunks.entries()) {
    const end = findEnd(changes, next, chunks[index + 1])
    if (end === next) {
      result.push(chunk)
      continue
    }
    if (++changed % CHANGES_PER_ITERATION === 0) await setImmediate()
    const text = replaceEntries(chunk, changes.slice(next, end))
    if (text === undefined) return undefined
    result.push(makeChunk(text, chunk.count, index, chunk))
    next = end
  }
  return next === changes.length ? result : undefined
}

/** Returns the index after the last change that belongs to the chunk before `chunk`. */
function findEnd(changes: readonly string[], from: number, chunk: Chunk | undefined): number {
  let end = from
  for (let change = changes[end]; change !== undefined && (!chunk || readPetId(change) < chunk.firstId); )
    change = changes[++end]
  return end
}

/** Returns the text of a chunk in which each of these entries replaces the one with its petId; undefined if there is none. */
function replaceEntries({ bytes }: Chunk, entries: readonly string[]): string | undefined {
  const text = bytes.toString('utf8', 1)
  const parts: string[] = []
  let start = 0
  for (const entry of entries) {
    const at = text.indexOf(entry.slice(0, entry.indexOf(',') + 1), start)
    if (at === -1) return undefined
    parts.push(text.slice(start, at), entry)
    const next = text.indexOf(ENTRY_START, at + 1)
    // The comma before the next entry belongs to what follows.
    start = next === -1 ? text.length : next - 1
  }
  return parts.join('') + text.slice(start)
}

function readPetId(text: string): bigint {
  return BigInt(text.slice(ENTRY_START.length, text.indexOf(',')))
}
