import type { Database, Statement } from './database.ts'

/** Returns the text of a statement. */
export function textOf(statement: Statement): string {
  return typeof statement === 'string' ? statement : statement.text
}

/**
 * Returns the pool for requests: it runs only statements that readiness plans, so that a statement that readiness forgets fails
 * always, and not only where a privilege is missing.
 */
export function onlyPlanned(database: Database, planned: ReadonlySet<string>): Database {
  const check = (text: string): void => {
    if (!planned.has(text)) throw new Error(`readiness does not plan a statement of requests: ${text}`)
  }
  return {
    ...database,
    query(statement, values) {
      check(textOf(statement))
      return database.query(statement, values)
    },
    readRows(text, onRow) {
      check(text)
      return database.readRows(text, onRow)
    },
  }
}
