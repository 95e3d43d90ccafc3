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

/**
 * Returns the piece of these entries.
 *
 * @param text the JSON texts of the entries, separated by commas; with `latin1`, each byte of their UTF-8 form is a character
 * @param index index of the piece in its list
 * @param former the piece that it replaces; returned if both are equal, so that data cached for it stays in use
 */
export function makePiece(
  text: string,
  count: number,
  index: number,
  former: Piece | undefined,
  encoding: 'utf8' | 'latin1' = 'utf8',
): Piece {
  const bytes = Buffer.from(`${index === 0 ? '[' : ','}${text}`, encoding)
  const digest = hash('sha256', bytes, 'base64')
  return former?.digest === digest ? former : { firstId: readPetId(text), count, bytes, digest }
}

/**
 * Returns the pieces of the list after the changes, each of which replaces the entry with the same petId. Returns undefined if there is
 * no such entry: then the list must be read again.
 *
 * @param lines the JSON texts of the changed entries, in ascending petId, one per line
 */
export async function withChanges(pieces: readonly Piece[], lines: string): Promise<Piece[] | undefined> {
  const changes = Buffer.from(lines).toString('latin1').split('\n')
  const result: Piece[] = []
  let next = 0
  let changed = 0
  for (const [index, piece] of pieces.entries()) {
    const end = findEnd(changes, next, pieces[index + 1])
    if (end === next) {
      result.push(piece)
      continue
    }
    if (++changed % CHANGES_PER_ITERATION === 0) await setImmediate()
    const text = replaceEntries(piece, changes.slice(next, end))
    if (text === undefined) return undefined
    result.push(makePiece(text, piece.count, index, piece, 'latin1'))
    next = end
  }
  return next === changes.length ? result : undefined
}

/** Returns the index after the last change that belongs to the piece before `piece`. */
function findEnd(changes: readonly string[], from: number, piece: Piece | undefined): number {
  let end = from
  for (let change = changes[end]; change !== undefined && (!piece || readPetId(change) < piece.firstId); )
    change = changes[++end]
  return end
}

/** Returns the text of a piece in which each of these entries replaces the one with its petId; undefined if there is none. */
function replaceEntries({ bytes }: Piece, entries: readonly string[]): string | undefined {
  const text = bytes.toString('latin1', 1)
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
