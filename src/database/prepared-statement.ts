import type { Connection, CustomTypesConfig, QueryResultRow, Submittable } from 'pg'

declare module 'pg' {
  interface Connection {
    /** The texts of the statements that the server has parsed, by name. pg keeps it, for its own queries too. */
    readonly parsedStatements: Readonly<Record<string, string>>
  }
}

interface Column {
  readonly name: string
  readonly parse: (text: string) => unknown
}

/** The columns of the statements that were described on a connection, by their names. */
const descriptions = new WeakMap<Connection, Map<string, readonly Column[]>>()

/**
 * Runs a named statement, for a client's `query` (PostgreSQL manual, section 54.2.3). The server parses and describes it
 * once for each connection; after that only Bind, Execute and Sync are sent. pg's own query has it described every time,
 * and costs this process twice as much. The description holds: if the type of a column has changed since, PostgreSQL
 * rejects the statement (SQLSTATE 0A000).
 */
export class PreparedStatement<Row extends QueryResultRow> implements Submittable {
  /** The rows once the statement is committed. Rejects with the error that the server reports or that ends the connection. */
  readonly rows: Promise<Row[]>
  readonly name: string
  readonly text: string
  readonly #values: (string | null)[]
  readonly #types: CustomTypesConfig
  readonly #received: Row[] = []
  #columns: readonly Column[] | undefined
  #onDescribed: (columns: readonly Column[]) => void = () => {}
  #resolve: (rows: Row[]) => void = () => {}
  #reject: (error: Error) => void = () => {}

  constructor(name: string, text: string, values: (string | null)[], types: CustomTypesConfig) {
    this.name = name
    this.text = text
    this.#values = values
    this.#types = types
    this.rows = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
  }

  submit(connection: Connection): void {
    const { name, text } = this
    const described = descriptions.get(connection) ?? new Map<string, readonly Column[]>()
    this.#columns = described.get(name)
    // All messages in one system call.
    connection.stream.cork()
    if (connection.parsedStatements[name] !== text) connection.parse({ name, text, types: [] }, true)
    connection.bind({ statement: name, values: this.#values }, true)
    if (this.#columns === undefined) {
      connection.describe({ type: 'P' }, true)
      descriptions.set(connection, described)
      this.#onDescribed = (columns) => described.set(name, columns)
    }
    connection.execute(null, true)
    connection.sync()
    connection.stream.uncork()
  }

  handleRowDescription({ fields }: { fields: readonly { name: string; dataTypeID: number }[] }): void {
    this.#columns = fields.map(({ name, dataTypeID }) => ({
      name,
      parse: this.#types.getTypeParser(dataTypeID, 'text'),
    }))
    this.#onDescribed(this.#columns)
  }

  handleDataRow({ fields }: { readonly fields: readonly (string | null)[] }): void {
    const row = Object.create(Object.prototype)
    this.#columns?.forEach(({ name, parse }, index) => {
      const text = fields[index] ?? null
      row[name] = text === null ? null : parse(text)
    })
    this.#received.push(row)
  }

  handleCommandComplete(): void {}

  handleReadyForQuery(): void {
    this.#resolve(this.#received)
  }

  handleError(error: Error): void {
    this.#reject(error)
  }

  /** Rejects for lack of an answer. The connection cannot be used any more. */
  giveUp(): void {
    this.#reject(new Error('No answer in time'))
  }
}
