import type { Connection, QueryResultRow, Submittable } from 'pg'
import type { NamedStatement, Value } from './database.ts'
import { resultTypes } from './session.ts'

declare module 'pg' {
  interface Connection {
    /**
     * Texts of the statements that the server has parsed, by name. Maintained by pg, which also uses it for its own queries.
     */
    readonly parsedStatements: Readonly<Record<string, string>>
  }
}

interface Column {
  readonly name: string
  readonly parse: (text: string) => unknown
}

/** Columns of the statements that were described on a connection, by statement name. */
export type Descriptions = Map<string, readonly Column[]>

/**
 * A named statement, to be passed to a client's `query` (PostgreSQL manual, section 54.2.3). The server parses and describes
 * it once per connection; after that, only Bind, Execute and Sync are sent. pg's own named queries request a description at
 * each execution, which takes this process twice the CPU time. A description stays valid: if the type of a column changes,
 * PostgreSQL rejects the statement (SQLSTATE 0A000).
 */
export class PreparedStatement<Row extends QueryResultRow> implements Submittable {
  readonly name: string
  readonly text: string
  readonly handleError: (error: Error) => void
  readonly #values: (string | null)[]
  readonly #onRows: (rows: Row[]) => void
  readonly #rows: Row[] = []
  readonly #descriptions: Descriptions
  #columns: readonly Column[] | undefined

  /**
   * @param descriptions those of the connection
   * @param onRows called with the rows when the statement is committed
   * @param onError called with the server's error, or the one that broke the connection
   */
  constructor(
    { name, text }: NamedStatement,
    values: readonly Value[],
    descriptions: Descriptions,
    onRows: (rows: Row[]) => void,
    onError: (error: Error) => void,
  ) {
    this.name = name
    this.text = text
    this.#values = values.map((value) => (value === null ? null : String(value)))
    this.#descriptions = descriptions
    this.#columns = descriptions.get(name)
    this.#onRows = onRows
    this.handleError = onError
  }

  submit(connection: Connection): void {
    const { name, text } = this
    // Sends all messages in one system call.
    connection.stream.cork()
    if (connection.parsedStatements[name] !== text) connection.parse({ name, text, types: [] }, true)
    connection.bind({ statement: name, values: this.#values }, true)
    if (this.#columns === undefined) connection.describe({ type: 'P' }, true)
    connection.execute(null, true)
    connection.sync()
    connection.stream.uncork()
  }

  handleRowDescription({ fields }: { fields: readonly { name: string; dataTypeID: number }[] }): void {
    this.#columns = fields.map(({ name, dataTypeID }) => ({
      name,
      parse: resultTypes.getTypeParser(dataTypeID, 'text'),
    }))
    this.#descriptions.set(this.name, this.#columns)
  }

  handleDataRow({ fields }: { readonly fields: readonly (string | null)[] }): void {
    // An empty object of type any: as with pg's own query, only the caller knows the type of its rows.
    const row = Object.create(Object.prototype)
    this.#columns?.forEach(({ name, parse }, index) => {
      const text = fields[index] ?? null
      row[name] = text === null ? null : parse(text)
    })
    this.#rows.push(row)
  }

  handleReadyForQuery(): void {
    this.#onRows(this.#rows)
  }

  handleCommandComplete(): void {}
}
