import { pipeline } from 'node:stream/promises'
import type { Transaction } from '../../database/transaction.ts'
import { COLUMN_NAMES, type Column, columns } from '../entry/columns.ts'
import { quote, readHeader, ruleOf } from './fields.ts'
import { InvalidInputError, readLines } from './lines.ts'

/** Maximum wrong lines to show; the others are counted. */
const SHOWN_ERRORS = 20

/** Key of the advisory lock for imports. Without it, two imports could deadlock, because they lock rows in different orders. */
const IMPORT_LOCK = 7_301_482_266

/** The lines of an input in the temporary table `staged`. */
export interface Staged {
  /** Number of rows, without the header and empty lines. */
  readonly rows: number
  /** Whether the last line has its end. Without it, the line may be incomplete. */
  readonly endsInNewline: boolean
  /**
   * Checks the lines. No other import runs from now on until the transaction ends.
   *
   * @throws {InvalidInputError} if a line is wrong, or repeats a petId
   */
  check(): Promise<void>
}

/**
 * SQL expression of the values of a line. Values may be in quotes. A valid one has no quote, comma or end of a line in them, so a
 * line that this splits at the wrong place is a wrong one.
 */
const FIELDS = `string_to_array(CASE WHEN position('"' IN text) = 0 THEN text
  ELSE regexp_replace(text, '(^|,)"([^",]*)"(?=,|$)', '\\1\\2', 'g') END, ',')`

/**
 * Reads CSV into the temporary table `staged`: the number of each line, and the values of its columns, NULL for those that it does
 * not have. Rejects with the errors of `source`.
 *
 * @throws {InvalidInputError} if the input is no text, or its first line does not name the columns
 */
export async function stageCsv(
  transaction: Transaction,
  source: AsyncIterable<Buffer>,
  signal: AbortSignal,
): Promise<Staged> {
  let last = ''
  async function* copyText(): AsyncGenerator<string> {
    for await (const text of readLines(source)) {
      last = text.at(-1) ?? last
      // In COPY's text format, a backslash makes the next character an ordinary one.
      yield text.replace(/[\\\t]/g, '\\$&')
    }
  }
  await transaction.query(
    'CREATE TEMPORARY TABLE lines (line bigint GENERATED ALWAYS AS IDENTITY, text text) ON COMMIT DROP',
  )
  await pipeline(copyText(), transaction.copyIn('COPY lines (text) FROM STDIN'), { signal })
  const [header] = await transaction.query<{ text: string }>('SELECT text FROM lines WHERE line = 1')
  const fileColumns = readHeader(header?.text ?? '')
  await transaction.query("SET LOCAL work_mem = '64MB'")
  const rows = await transaction.change(createStaged(fileColumns))
  return {
    rows,
    endsInNewline: last === '\n',
    check: () => checkStaged(transaction, fileColumns),
  }
}

/**
 * Returns the statement that splits the lines and checks their values. It keeps the texts of a wrong line. It leaves out lines of
 * nothing but commas, which spreadsheets write below a table.
 */
function createStaged(fileColumns: readonly Column[]): string {
  const read = columns.map((column) => ({ ...column, text: `fields[${fileColumns.indexOf(column) + 1}]` }))
  const values = read.map((column) => `${ruleOf(column).value(column.text)} AS ${column.column}`)
  const isWrong = read.map(({ column, initial, text }) =>
    initial === undefined ? `${column} IS NULL` : `${column} IS NULL AND ${text} <> ''`,
  )
  return `CREATE TEMPORARY TABLE staged ON COMMIT DROP AS
    SELECT line, ${COLUMN_NAMES}, CASE WHEN cardinality(fields) <> ${fileColumns.length} OR ${isWrong.join(' OR ')} THEN fields END AS wrong
    FROM (SELECT line, text, fields, ${values}
          FROM (SELECT line, text, ${FIELDS} AS fields FROM lines WHERE line > 1 OFFSET 0) AS split OFFSET 0) AS checked
    WHERE pet_id IS NOT NULL OR btrim(text, ',') <> ''`
}

interface WrongLine {
  readonly line: string
  /** The texts of a line that has a wrong one; null for a line that repeats a petId. */
  readonly wrong: readonly string[] | null
  /** For each column, whether it has a value. */
  readonly hasValue: readonly boolean[]
  readonly petId: string
  /** The line that has the petId, too. */
  readonly earlier: string
  /** Number of wrong lines. */
  readonly count: string
}

async function checkStaged(transaction: Transaction, fileColumns: readonly Column[]): Promise<void> {
  await transaction.takeAdvisoryLock(IMPORT_LOCK)
  await transaction.query('ANALYZE staged (pet_id)')
  const hasValue = fileColumns.map(({ column }) => `${column} IS NOT NULL`)
  const lines = await transaction.query<WrongLine>(
    `SELECT line, wrong, ARRAY[${hasValue}] AS "hasValue", pet_id AS "petId", earlier, count(*) OVER () AS count
     FROM (SELECT *, lag(line) OVER (PARTITION BY pet_id ORDER BY line) AS earlier FROM staged) AS numbered
     WHERE wrong IS NOT NULL OR earlier IS NOT NULL ORDER BY numbered.line LIMIT ${SHOWN_ERRORS}`,
  )
  const [first] = lines
  if (first === undefined) return
  const more = Number(first.count) > SHOWN_ERRORS ? `, of which these are the first ${SHOWN_ERRORS}` : ''
  throw new InvalidInputError(
    first.count === '1' ? 'has 1 error' : `has ${Number(first.count).toLocaleString('en-US')} errors${more}`,
    lines.map((line) => ({ line: Number(line.line), error: describe(line, fileColumns) })),
  )
}

function describe({ wrong, hasValue, petId, earlier }: WrongLine, fileColumns: readonly Column[]): string {
  if (wrong === null) return `petId ${petId} already occurs in line ${earlier}`
  if (wrong.length !== fileColumns.length)
    return `there must be ${fileColumns.length} values, not ${wrong.length}`
  return fileColumns
    .flatMap((column, index) => {
      const text = wrong[index] ?? ''
      if (hasValue[index] || (text === '' && column.initial !== undefined)) return []
      return `${column.field} must be ${ruleOf(column).expected}, not ${quote(text)}`
    })
    .join('; ')
}
