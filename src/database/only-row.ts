/** Returns the row of a statement that always has exactly one. Throws if there is none. */
export function onlyRow<Row>([row]: readonly Row[]): Row {
  if (row === undefined) throw new Error('PostgreSQL returned no row')
  return row
}
