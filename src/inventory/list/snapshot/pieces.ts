import { hash } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'

/**
 * Maximum number of entries in a piece. A piece is small enough to be copied and hashed at each change, and large enough that
 * sending a list in pieces takes no longer than sending it as one buffer.
 */
export const ENTRIES_PER_PIECE = 1024

/** Maximum pieces to change in one event-loop iteration. Each takes about 0.1 ms. */
const CHANGES_PER_ITERATION = 8

/** The start of each entry. It cannot occur elsewhere, because quotes are escaped within JSON strings. */
const ENTRY_START = '{"petId":'

/**
 * Consecutive entries of a list: `ENTRIES_PER_PIECE` of them, or fewer in the last piece. So equal lists consist of equal
 * pieces, whether they were read in full or made from changes. A piece is immutable, and lists share those that they have in
 * common.
 */
export interface Piece {
  /** The petId of the first entry. */
  readonly firstId: bigint
  /** Number of entries. */
  readonly count: number
  /**
   * The JSON text of the entries, each preceded by a comma, or by the opening bracket if it is the first of the list. With a
   * closing bracket at the end, the bytes of all pieces are the JSON text of the list.
   */
  readonly bytes: Buffer
  /** The SHA-256 of the bytes, in base64. */
  readonly digest: string
}

/** The JSON texts of consecutive entries, separated by commas. In changes, each byte of the UTF-8 form is a character. */
interface Entries {
  readonly text: string
  readonly count: number
}

/**
 * Returns the piece of these entries.
 *
 * @param index index of the piece in its list
 * @param former the piece that it replaces; returned if both are equal, so that data cached for it stays in use
 */
export function pieceOf(
  { text, count }: Entries,
  index: number,
  former: Piece | undefined,
  encoding: 'utf8' | 'latin1' = 'utf8',
): Piece {
  const bytes = Buffer.from(`${index === 0 ? '[' : ','}${text}`, encoding)
  const digest = hash('sha256', bytes, 'base64')
  return former?.digest === digest ? former : { firstId: idAt(text, 0), count, bytes, digest }
}

/** Returns the number of entries in the pieces. */
export function countEntries(pieces: readonly Piece[]): number {
  return pieces.reduce((sum, { count }) => sum + count, 0)
}

/**
 * Returns the pieces of the list after the changes: each changed entry replaces the one with the same petId, or is inserted if
 * there is none. Unaffected pieces are returned as the same objects. Returns undefined if more than a piece of entries is new:
 * then reading the list again is as fast.
 *
 * @param lines the JSON texts of the changed entries, in ascending petId, one per line
 */
export async function withChanges(pieces: readonly Piece[], lines: string): Promise<Piece[] | undefined> {
  const changes = changesOf(lines)
  const result: Piece[] = []
  let next = 0
  /** Entries that did not fit into the last piece. */
  let excess: Entries = NO_ENTRIES
  let changed = 0
  for (const [index, piece] of pieces.entries()) {
    const end = endOf(changes, next, pieces[index + 1])
    if (end === next && excess.count === 0) {
      result.push(piece)
      continue
    }
    if (++changed % CHANGES_PER_ITERATION === 0) await setImmediate()
    const entries = joined(excess, merged(entriesOf(piece), changes.slice(next, end)))
    const [first, rest] = split(entries)
    if (rest.count > ENTRIES_PER_PIECE) return undefined
    result.push(pieceOf(first, index, piece, 'latin1'))
    excess = rest
    next = end
  }
  let rest = joined(excess, merged(NO_ENTRIES, changes.slice(next)))
  while (rest.count > 0) {
    const [first, others] = split(rest)
    result.push(pieceOf(first, result.length, undefined, 'latin1'))
    rest = others
  }
  return result
}

const NO_ENTRIES: Entries = { text: '', count: 0 }

interface Change {
  readonly petId: bigint
  readonly text: string
}

function changesOf(lines: string): Change[] {
  if (lines === '') return []
  const bytes = Buffer.from(lines).toString('latin1')
  return bytes.split('\n').map((text) => ({ petId: idAt(text, 0), text }))
}

/** Returns the index after the last change that belongs to the piece before `piece`. */
function endOf(changes: readonly Change[], from: number, piece: Piece | undefined): number {
  if (piece === undefined) return changes.length
  let end = from
  for (let change = changes[end]; change !== undefined && change.petId < piece.firstId; )
    change = changes[++end]
  return end
}

function entriesOf({ bytes, count }: Piece): Entries {
  return { text: bytes.toString('latin1', 1), count }
}

/** Returns the entries with the changes, each of which replaces an entry or is inserted. */
function merged(entries: Entries, changes: readonly Change[]): Entries {
  const { text } = entries
  const parts: string[] = []
  let { count } = entries
  let start = 0
  for (const change of changes) {
    const found = text.indexOf(`${ENTRY_START}${change.petId},`, start)
    const at = found === -1 ? insertionPoint(text, start, change.petId) : found
    // Without the comma before the next entry.
    if (at > start) parts.push(text.slice(start, at === text.length ? at : at - 1))
    parts.push(change.text)
    if (found === -1) count++
    start = found === -1 ? at : nextEntry(text, at)
  }
  if (start < text.length) parts.push(text.slice(start))
  return { text: parts.join(), count }
}

/** Returns the offset of the first entry, from the one at `start` on, whose petId is larger; the end of the text if none is. */
function insertionPoint(text: string, start: number, petId: bigint): number {
  let at = start
  while (at < text.length && idAt(text, at) < petId) at = nextEntry(text, at)
  return at
}

/** Returns the offset of the entry after the one at `at`, or the end of the text. */
function nextEntry(text: string, at: number): number {
  const next = text.indexOf(ENTRY_START, at + 1)
  return next === -1 ? text.length : next
}

function idAt(text: string, at: number): bigint {
  return BigInt(text.slice(at + ENTRY_START.length, text.indexOf(',', at)))
}

function joined(one: Entries, other: Entries): Entries {
  if (one.count === 0) return other
  if (other.count === 0) return one
  return { text: `${one.text},${other.text}`, count: one.count + other.count }
}

/** Splits entries after the first `ENTRIES_PER_PIECE`. */
function split(entries: Entries): [first: Entries, rest: Entries] {
  const { text, count } = entries
  if (count <= ENTRIES_PER_PIECE) return [entries, NO_ENTRIES]
  let at = 0
  for (let index = 0; index < ENTRIES_PER_PIECE; index++) at = nextEntry(text, at)
  return [
    { text: text.slice(0, at - 1), count: ENTRIES_PER_PIECE },
    { text: text.slice(at), count: count - ENTRIES_PER_PIECE },
  ]
}
