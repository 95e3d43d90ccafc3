import type { Pool } from './pool.ts'
import { textOf } from './statement.ts'

/**
 * Returns the pool for requests: it runs only statements that readiness plans, so that a statement that readiness forgets fails
 * always, and not only where a privilege is missing.
 */
export function onlyPlanned(pool: Pool, planned: ReadonlySet<string>): Pool {
  const check = (text: string): void => {
    if (!planned.has(text)) throw new Error(`readiness does not plan a statement of requests: ${text}`)
  }
  return {
    ...pool,
    query(statement, values) {
      check(textOf(statement))
      return pool.query(statement, values)
    },
    readRows(text, onRow) {
      check(text)
      return pool.readRows(text, onRow)
    },
  }
}
