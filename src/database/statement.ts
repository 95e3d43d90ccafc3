import type pg from 'pg'

/** A statement that runs often. Its name always stands for the same text. */
export interface NamedStatement {
  readonly name: string
  readonly text: string
}

export type Statement = string | NamedStatement

/** Returns the text of a statement. */
export function toText(statement: Statement): string {
  return typeof statement === 'string' ? statement : statement.text
}

export type Value = string | number | bigint | null

/** The values of a row as text. */
export type TextRow = readonly (string | null)[]

/** Runs single statements: a pool, or a transaction. */
export interface StatementRunner {
  query<Row extends pg.QueryResultRow>(text: string, values?: readonly unknown[]): Promise<Row[]>
}
