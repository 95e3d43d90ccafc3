import type { Connection, Submittable } from 'pg'

/** The values of a row as text, in the order of its columns. */
export type TextRow = readonly (string | null)[]

/**
 * Runs one or several statements, which PostgreSQL runs as one transaction (PostgreSQL manual, section 54.2.2.1), and hands over
 * each row as it arrives, so that a long result is never in memory as a whole. Pass it to a client's `query`.
 */
export class RowReader implements Submittable {
  readonly #text: string
  readonly handleReadyForQuery: () => void
  readonly handleError: (error: Error) => void
  readonly #onRow: (row: TextRow) => void

  /**
   * @param onRow must not throw, because pg calls it while it parses the server's messages
   * @param onEnd called after the last row
   * @param onError called with the server's error, or the one that broke the connection
   */
  constructor(
    text: string,
    onRow: (row: TextRow) => void,
    onEnd: () => void,
    onError: (error: Error) => void,
  ) {
    this.#text = text
    this.#onRow = onRow
    this.handleReadyForQuery = onEnd
    this.handleError = onError
  }

  submit(connection: Connection): void {
    connection.query(this.#text)
  }

  handleDataRow({ fields }: { readonly fields: TextRow }): void {
    this.#onRow(fields)
  }

  handleRowDescription(): void {}
  handleCommandComplete(): void {}
}
