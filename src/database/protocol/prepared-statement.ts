import type { Connection, CustomTypesConfig, QueryResultRow, Submittable } from 'pg'

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

/** PostgreSQL did not respond to a statement in time. The connection must not be used again before it has. */
export class LateStatementError extends Error {
  override readonly name = 'LateStatementError'
  /** Resolves when the server answers, or with an error if the server reports it or the connection is lost. */
  readonly answered: Promise<Error | undefined>

  constructor(answered: Promise<Error | undefined>) {
    super('PostgreSQL did not respond in time')
    this.answered = answered
  }
}

/** Columns of the statements that were described on a connection, by statement name. */
const descriptions = new WeakMap<Connection, Map<string, readonly Column[]>>()

/**
 * A named statement, to be passed to a client's `query` (PostgreSQL manual, section 54.2.3). The server parses and describes
 * it once per connection; after that, only Bind, Execute and Sync are sent. pg's own named queries request a description at
 * each execution, which takes this process twice the CPU time. A description stays valid: if the type of a column changes,
 * PostgreSQL rejects the statement (SQLSTATE 0A000). With an empty name, it is parsed and described each time.
 */
export class PreparedStatement<Row extends QueryResultRow> implements Submittable {
  /**
   * Resolves with the rows once the statement is committed. Rejects with the server's error, or the one that broke the
   * connection.
   */
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
    this.#columns = name === '' ? undefined : described.get(name)
    // Sends all messages in one system call.
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
    // An empty object of type any: as with pg's own query, only the caller knows the type of its rows.
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

  /** Rejects `rows` with a `LateStatementError`, because the server did not respond in time. */
  giveUp(): void {
    const reject = this.#reject
    const answered = new Promise<Error | undefined>((resolve) => {
      this.#resolve = () => resolve(undefined)
      this.#reject = resolve
    })
    reject(new LateStatementError(answered))
  }
}
