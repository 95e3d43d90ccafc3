import { pipeline } from 'node:stream/promises'
import type { Transaction } from '../../database/admin/transaction.ts'
import { COLUMN_NAMES, columns } from '../entry/columns.ts'
import { InvalidInputError, type LineError, readLines } from './lines.ts'
import { type ReadRow, rowReader } from './rows.ts'

/** Maximum wrong lines to show. */
const SHOWN_ERRORS = 20

/** Key of the advisory lock for imports. Without it, two imports could deadlock, because they lock rows in different orders. */
const IMPORT_LOCK = 7_301_482_266

/**
 * Reads CSV into the temporary table `staged`: the number of each line with a right row, and the values of its columns, NULL for
 * those that it does not have. Leaves out lines of nothing but commas, which spreadsheets write below a table. Rejects with the errors
 * of `source`.
 *
 * @param onRows called with the number of rows read so far, after each chunk of the source
 * @throws {InvalidInputError} if the input is no text, or its first line does not name the columns
 */
export async function stageCsv(
  transaction: Transaction,
  source: AsyncIterable<Buffer>,
  signal: AbortSignal,
  onRows: (rows: number) => void = () => {},
) {
  let readRow: ReadRow | undefined
  let lines = 0
  let rows = 0
  const errors: LineError[] = []
  let last = ''

  const copyLine = (line: string): string => {
    lines += 1
    if (readRow === undefined) readRow = rowReader(line)
    else if (!/^,*$/.test(line)) {
      rows += 1
      const row = readRow(line)
      if ('values' in row) return `${lines},${row.values.join(',')}\n`
      if (errors.length < SHOWN_ERRORS) errors.push({ line: lines, error: row.error })
    }
    return ''
  }
  async function* copyText(): AsyncGenerator<string> {
    for await (const chunk of readLines(source)) {
      last = chunk.at(-1) ?? last
      const text = chunk.map(copyLine).join('')
      onRows(rows)
      yield text
    }
  }

  const definitions = columns.map(({ column, type }) => `${column} ${type}`).join(', ')
  await transaction.query(`CREATE TEMPORARY TABLE staged (line bigint, ${definitions}) ON COMMIT DROP`)
  // No right value has a character that COPY escapes.
  const copy = `COPY staged (line, ${COLUMN_NAMES}) FROM STDIN (DELIMITER ',', NULL '')`
  await pipeline(copyText(), transaction.copyIn(copy), { signal })
  return {
    /** Number of rows, right and wrong ones, without the header and empty lines. */
    rows,
    /** Whether the last line has its end. Without it, the line may be incomplete. */
    endsInNewline: last === '',
    /** The first lines without a right row. */
    errors,
  }
}

/**
 * Rejects wrong lines: the `errors` of staging, and those that repeat a petId. No other import runs from now on until the transaction
 * ends.
 *
 * @throws {InvalidInputError}
 */
export async function checkStaged(transaction: Transaction, errors: readonly LineError[]): Promise<void> {
  await transaction.takeAdvisoryLock(IMPORT_LOCK)
  await transaction.query("SET LOCAL work_mem = '64MB'")
  await transaction.query('ANALYZE staged (pet_id)')
  const repeated = await transaction.query<{ line: number; error: string }>(
    `SELECT numbered.line::float8 AS line,
            format('petId %s already occurs in line %s', numbered.pet_id, numbered.earlier) AS error
     FROM (
       SELECT staged.line, staged.pet_id, lag(staged.line) OVER (PARTITION BY staged.pet_id ORDER BY staged.line) AS earlier
       FROM staged
     ) AS numbered
     WHERE numbered.earlier IS NOT NULL ORDER BY numbered.line LIMIT ${SHOWN_ERRORS}`,
  )
  const listed = [...errors, ...repeated].sort((a, b) => a.line - b.line).slice(0, SHOWN_ERRORS)
  if (listed.length === 0) return
  const rest = listed.length < SHOWN_ERRORS ? '' : `; these are the first ${SHOWN_ERRORS}`
  throw new InvalidInputError(`has errors${rest}`, listed)
}
