import type { Connection, Submittable } from 'pg'

/** The values of a row as text, in the order of its columns. */
export type TextRow = readonly (string | null)[]

/**
 * Runs one or several statements, which PostgreSQL runs as one transaction (PostgreSQL manual, section 54.2.2.1), and hands over
 * each row as it arrives, so that a long result is never in memory as a whole. Pass it to a client's `query`.
 */
export class RowReader implements Submittable {
  /** Resolves after the last row. Rejects with the server's error, or the one that broke the connection. */
  readonly done: Promise<void>
  readonly #text: string
  readonly #onRow: (row: TextRow) => void
  #resolve: () => void = () => {}
  #reject: (error: Error) => void = () => {}

  /** @param onRow must not throw, because pg calls it while it parses the server's messages */
  constructor(text: string, onRow: (row: TextRow) => void) {
    this.#text = text
    this.#onRow = onRow
    this.done = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
  }

  submit(connection: Connection): void {
    connection.query(this.#text)
  }

  handleRowDescription(): void {}

  handleDataRow({ fields }: { readonly fields: TextRow }): void {
    this.#onRow(fields)
  }

  handleCommandComplete(): void {}

  handleReadyForQuery(): void {
    this.#resolve()
  }

  handleError(error: Error): void {
    this.#reject(error)
  }

  /** Rejects `done` because the server did not respond in time. The connection must not be used again. */
  giveUp(): void {
    this.#reject(new Error('PostgreSQL did not respond in time'))
  }
}
