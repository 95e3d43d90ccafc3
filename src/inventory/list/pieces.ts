import { hash } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'

const NEWLINE = 0x0a
const COMMA = 0x2c
const MINUS = 0x2d
const OPENING_BRACKET = 0x5b
const CLOSING_BRACKET = 0x5d

/** Offset of the petId's digits in an entry. */
const ID_OFFSET = '{"petId":'.length

/**
 * Average number of entries in a piece, a power of two. A piece is small enough to be copied and hashed at each change, and
 * large enough that sending a list in pieces takes no longer than sending it as one buffer.
 */
const AVERAGE_ENTRIES = 4096

/** Initial size of the buffer of a `PieceBuilder`, in bytes. */
const INITIAL_BYTES = 65_536

/** Maximum pieces to change in one event-loop iteration. Each takes about 0.3 ms. */
const MERGES_PER_ITERATION = 4

/** Entries in ascending petId, and their offsets in a buffer. */
export interface Entries {
  /** The JSON text of each entry, followed by one separator: a comma, or the bracket that closes the list. */
  readonly bytes: Buffer
  /** The offset of each entry in `bytes`. */
  readonly starts: Uint32Array
}

/**
 * Consecutive entries of a list. A piece is immutable, so lists share the pieces that they have in common. Joined, the bytes
 * of a list's pieces are its JSON text: the first piece includes the opening bracket, the last one the closing bracket.
 *
 * A hash of its petId decides whether an entry starts a new piece (content-defined chunking). Equal lists are therefore cut
 * into equal pieces, whether they were read in full or made from changes, and a change affects only its own piece.
 */
export interface Piece extends Entries {
  /** The SHA-256 of the bytes, in base64. */
  readonly digest: string
}

/** Cuts lines into pieces. Each line is the JSON text of an entry; the lines arrive in chunks of any length. */
export class PieceBuilder {
  #buffer = Buffer.allocUnsafeSlow(INITIAL_BYTES)
  /** Offset of the free part of the buffer. */
  #used = this.#buffer.writeUInt8(OPENING_BRACKET, 0)
  /** Offset of the first incomplete line. */
  #start = 1
  #starts: number[] = []
  readonly #pieces: Piece[] = []
  readonly #known: ReadonlyMap<string, Piece>

  /** Pieces in `known` replace equal new ones, so that data cached for them, such as their compressed form, stays in use. */
  constructor(known: readonly Piece[] = []) {
    this.#known = new Map(known.map((piece) => [piece.digest, piece]))
  }

  add(lines: Buffer): void {
    this.#reserve(lines.length)
    this.#used += lines.copy(this.#buffer, this.#used)
    for (;;) {
      const end = this.#buffer.indexOf(NEWLINE, this.#start)
      if (end === -1 || end >= this.#used) return
      // The newline that ends a line becomes the comma after the entry.
      this.#buffer[end] = COMMA
      const length = end + 1 - this.#start
      if (this.#starts.length > 0 && startsPiece(this.#buffer, this.#start)) this.#cut()
      this.#starts.push(this.#start)
      this.#start += length
    }
  }

  /** Returns all pieces. Call it once, after the last `add`. */
  finish(): Piece[] {
    if (this.#starts.length > 0) {
      this.#buffer[this.#start - 1] = CLOSING_BRACKET
      this.#cut()
    }
    return this.#pieces
  }

  /** Makes a piece from the complete entries, and moves the rest to the start of the buffer. */
  #cut(): void {
    const piece = pieceOf(Buffer.from(this.#buffer.subarray(0, this.#start)), Uint32Array.from(this.#starts))
    this.#pieces.push(this.#known.get(piece.digest) ?? piece)
    this.#buffer.copyWithin(0, this.#start, this.#used)
    this.#used -= this.#start
    this.#start = 0
    this.#starts = []
  }

  #reserve(length: number): void {
    if (this.#used + length <= this.#buffer.length) return
    const larger = Buffer.allocUnsafeSlow(2 * (this.#used + length))
    this.#buffer.copy(larger, 0, 0, this.#used)
    this.#buffer = larger
  }
}

/** Returns the entries in the lines. Each line is the JSON text of an entry; the last one has no newline. */
export function entriesOfLines(lines: Buffer): Entries {
  if (lines.length === 0) return { bytes: lines, starts: new Uint32Array() }
  const bytes = Buffer.allocUnsafeSlow(lines.length + 1)
  lines.copy(bytes)
  bytes[lines.length] = COMMA
  const starts = [0]
  for (let end = bytes.indexOf(NEWLINE); end !== -1; end = bytes.indexOf(NEWLINE, end)) {
    bytes[end] = COMMA
    starts.push(end + 1)
  }
  return { bytes, starts: Uint32Array.from(starts) }
}

/** Returns the number of entries in the pieces. */
export function countEntries(pieces: readonly Piece[]): number {
  return pieces.reduce((count, { starts }) => count + starts.length, 0)
}

/**
 * Returns the pieces of the list after the changes: each changed entry replaces the one with the same petId, or is inserted
 * if there is none. Unaffected pieces are returned as the same objects.
 */
export async function withChanges(pieces: readonly Piece[], changes: Entries): Promise<Piece[]> {
  const { starts } = changes
  const all: Piece[] = []
  let first = 0
  let merges = 0
  for (const [index, piece] of (pieces.length === 0 && starts.length > 0 ? [NO_ENTRIES] : pieces).entries()) {
    const next = pieces[index + 1]
    const end = next === undefined ? starts.length : findEntry(changes, next, 0, first)
    if (end === first) {
      all.push(piece)
      continue
    }
    if (++merges % MERGES_PER_ITERATION === 0) await setImmediate()
    all.push(...merged(piece, { isFirst: index === 0, isLast: next === undefined }, changes, first, end))
    first = end
  }
  return all
}

const NO_ENTRIES: Piece = { bytes: Buffer.alloc(0), starts: new Uint32Array(), digest: '' }

/** Consecutive entries of one source, from index `first` up to but excluding `end`. */
interface Run {
  readonly from: Entries
  readonly first: number
  readonly end: number
}

/** Which ends of the list entries contain. */
interface Ends {
  readonly isFirst: boolean
  readonly isLast: boolean
}

/** Returns the pieces that replace `piece` after the changes from `first` up to but excluding `end`. */
function merged(piece: Piece, ends: Ends, changes: Entries, first: number, end: number): Piece[] {
  const runs: Run[] = []
  let isSame = true
  let taken = 0
  for (let change = first; change < end; change++) {
    const found = findEntry(piece, changes, change, taken)
    if (found > taken) runs.push({ from: piece, first: taken, end: found })
    runs.push({ from: changes, first: change, end: change + 1 })
    const replaces = found < piece.starts.length && compareIds(piece, found, changes, change) === 0
    taken = replaces ? found + 1 : found
    isSame &&= replaces && areEqual(piece, found, changes, change)
  }
  if (isSame) return [piece]
  if (taken < piece.starts.length) runs.push({ from: piece, first: taken, end: piece.starts.length })
  return cut(runs, ends)
}

/**
 * Cuts runs into pieces. Only the first entry of a run can start a piece, because all others followed it in the same piece
 * before, where none of them started a new one.
 */
function cut(runs: readonly Run[], { isFirst, isLast }: Ends): Piece[] {
  const pieces: Piece[] = []
  let own: Run[] = []
  for (const run of runs) {
    if (own.length > 0 && startsPiece(run.from.bytes, startOf(run.from, run.first))) {
      pieces.push(joined(own, { isFirst: isFirst && pieces.length === 0, isLast: false }))
      own = []
    }
    own.push(run)
  }
  pieces.push(joined(own, { isFirst: isFirst && pieces.length === 0, isLast }))
  return pieces
}

/** Joins all entries of the runs into one piece. */
function joined(runs: readonly Run[], { isFirst, isLast }: Ends): Piece {
  const size = runs.reduce((sum, { from, first, end }) => sum + startOf(from, end) - startOf(from, first), 0)
  const bytes = Buffer.allocUnsafeSlow(isFirst ? size + 1 : size)
  const starts = new Uint32Array(runs.reduce((count, { first, end }) => count + end - first, 0))
  let used = isFirst ? bytes.writeUInt8(OPENING_BRACKET) : 0
  let count = 0
  for (const { from, first, end } of runs) {
    const at = startOf(from, first)
    const offset = used - at
    for (let index = first; index < end; index++) starts[count++] = startOf(from, index) + offset
    used += from.bytes.copy(bytes, used, at, startOf(from, end))
    // It may have been the closing bracket.
    bytes[used - 1] = COMMA
  }
  if (isLast) bytes[used - 1] = CLOSING_BRACKET
  return pieceOf(bytes, starts)
}

function pieceOf(bytes: Buffer, starts: Uint32Array): Piece {
  return { bytes, starts, digest: hash('sha256', bytes, 'base64') }
}

/** Returns the offset of an entry, or the end of `bytes` for the index after the last entry. */
function startOf({ bytes, starts }: Entries, index: number): number {
  return starts[index] ?? bytes.length
}

/** Returns the index of the first entry, starting at `from`, whose petId is not less than the other entry's. */
function findEntry(entries: Entries, other: Entries, otherIndex: number, from: number): number {
  let low = from
  let high = entries.starts.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (compareIds(entries, middle, other, otherIndex) < 0) low = middle + 1
    else high = middle
  }
  return low
}

function areEqual(one: Entries, index: number, other: Entries, otherIndex: number): boolean {
  const at = startOf(other, otherIndex)
  const end = startOf(other, otherIndex + 1) - 1
  return one.bytes.compare(other.bytes, at, end, startOf(one, index), startOf(one, index + 1) - 1) === 0
}

/** Compares two petIds by their digits: numbers would be rounded, and BigInts would have to be allocated. */
function compareIds(one: Entries, index: number, other: Entries, otherIndex: number): number {
  const at = startOf(one, index) + ID_OFFSET
  const otherAt = startOf(other, otherIndex) + ID_OFFSET
  const isNegative = one.bytes[at] === MINUS
  if (isNegative !== (other.bytes[otherAt] === MINUS)) return isNegative ? -1 : 1
  const end = one.bytes.indexOf(COMMA, at)
  const otherEnd = other.bytes.indexOf(COMMA, otherAt)
  // Without leading zeros, the longer of two numbers is larger.
  const order = end - at - (otherEnd - otherAt) || one.bytes.compare(other.bytes, otherAt, otherEnd, at, end)
  return isNegative ? -order : order
}

/** Whether the entry starts a new piece, by the FNV-1a hash of its petId's digits. One in `AVERAGE_ENTRIES` does. */
function startsPiece(bytes: Buffer, start: number): boolean {
  let hash = 0x811c9dc5
  for (let at = start + ID_OFFSET; bytes[at] !== COMMA; at++) {
    hash = Math.imul(hash ^ (bytes[at] ?? 0), 0x01000193)
  }
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  return ((hash ^ (hash >>> 13)) & (AVERAGE_ENTRIES - 1)) === 0
}
