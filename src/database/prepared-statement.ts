import type { Client, Connection, QueryResultRow } from 'pg'
import { resultTypes } from './session.ts'
import type { NamedStatement, Value } from './statement.ts'

interface Column {
  readonly name: string
  readonly parse: (text: string) => unknown
}

/** Columns of the statements that a connection has described, by name. */
export type Descriptions = Map<string, readonly Column[]>

/**
 * Runs a named statement (PostgreSQL manual, section 54.2.3), and returns its rows when it is committed. The server parses and
 * describes it once per connection. pg's own named queries request a description at each execution, for twice the CPU time of this
 * process. A description stays valid: if the type of a column changes, PostgreSQL rejects the statement (SQLSTATE 0A000).
 */
export function queryNamed<Row extends QueryResultRow>(
  client: Client & { readonly descriptions: Descriptions },
  { name, text }: NamedStatement,
  values: readonly Value[],
): Promise<Row[]> {
  const texts = values.map((value) => (value === null ? null : String(value)))
  const rows: Row[] = []
  let columns = client.descriptions.get(name)
  return new Promise((resolve, reject) => {
    client.query({
      name,
      text,
      submit(connection: Connection) {
        // Sends all messages in one system call.
        connection.stream.cork()
        if (connection.parsedStatements[name] !== text) connection.parse({ name, text, types: [] }, true)
        connection.bind({ statement: name, values: texts }, true)
        if (columns === undefined) connection.describe({ type: 'P' }, true)
        connection.execute(null, true)
        connection.sync()
        connection.stream.uncork()
      },
      handleRowDescription({ fields }: { fields: readonly { name: string; dataTypeID: number }[] }) {
        columns = fields.map(({ name, dataTypeID }) => ({
          name,
          parse: resultTypes.getTypeParser(dataTypeID, 'text'),
        }))
        client.descriptions.set(name, columns)
      },
      handleDataRow({ fields }: { readonly fields: readonly (string | null)[] }) {
        // An empty object of type any: as with pg's own query, only the caller knows the type of its rows.
        const row = Object.create(Object.prototype)
        columns?.forEach(({ name, parse }, index) => {
          const text = fields[index] ?? null
          row[name] = text === null ? null : parse(text)
        })
        rows.push(row)
      },
      handleReadyForQuery: () => resolve(rows),
      handleCommandComplete() {},
      handleError: reject,
    })
  })
}
