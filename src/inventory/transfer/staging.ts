import { type Conflict, stagedText } from './import.ts'
import type { ImportLine, InvalidLine } from './import-line.ts'

/** Maximum errors to show; the others are counted. */
export const SHOWN_ERRORS = 20

/** The first errors of a file, in the order of lines, and their total number. */
export interface InputErrors {
  readonly first: readonly Conflict[]
  readonly count: number
}

/** Converts valid lines to text for the staging table, and collects the first errors. */
export class Staging {
  rows = 0
  /** True if an error ended the reading before the end of the file. */
  endedEarly = false
  readonly #first: Conflict[] = []
  #count = 0

  async *textOf(batches: AsyncIterable<ImportLine[]>): AsyncGenerator<string> {
    for await (const batch of batches) {
      let text = ''
      for (const line of batch) {
        this.rows += 1
        if ('entry' in line) text += stagedText(line.number, line.entry)
        else this.#add(line)
      }
      if (text !== '') yield text
    }
  }

  /** All errors: those of single lines, and conflicts between lines. */
  errorsWith(conflicts: InputErrors): InputErrors {
    const first = [...this.#first, ...conflicts.first].sort((one, other) => one.line - other.line)
    return { first: first.slice(0, SHOWN_ERRORS), count: this.#count + conflicts.count }
  }

  #add({ number: line, error, endsReading }: InvalidLine): void {
    this.#count += 1
    if (endsReading) this.endedEarly = true
    if (this.#first.length < SHOWN_ERRORS) this.#first.push({ line, error })
  }
}
