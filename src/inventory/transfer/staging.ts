import { pipeline } from 'node:stream/promises'
import { toCopyText } from '../../database/copy-text.ts'
import type { Transaction } from '../../database/transaction.ts'
import { columns } from '../entry/columns.ts'
import type { ImportLine, LineError } from './import-line.ts'

/** Maximum errors to show; the others are counted. */
const SHOWN_ERRORS = 20

/** The first errors of a file, in the order of lines, and their total number. */
export interface LineErrors {
  readonly first: readonly LineError[]
  readonly count: number
}

/** The input cannot be imported. Nothing was changed. */
export class InvalidInputError extends Error {
  override readonly name = 'InvalidInputError'
  readonly errors: LineErrors
  /** Why the input counts as incomplete or unexpected; undefined if it does not. */
  readonly sourceError: string | undefined

  constructor(errors: LineErrors, sourceError?: string) {
    super('The input has errors')
    this.errors = errors
    this.sourceError = sourceError
  }
}

/** The lines of an input. */
export interface Staged {
  /** Their number, without the header and empty lines. */
  readonly rows: number
  /** The errors of the invalid ones, which are not in the table. */
  readonly errors: LineErrors
}

/**
 * Copies the valid lines of an input into a temporary table `staged`.
 *
 * @param onProgress called with the number of lines read so far
 */
export async function stageLines(
  transaction: Transaction,
  batches: AsyncIterable<readonly ImportLine[]>,
  signal: AbortSignal,
  onProgress: (rows: number) => void,
): Promise<Staged> {
  const first: LineError[] = []
  let count = 0
  let rows = 0
  async function* copyText(): AsyncGenerator<string> {
    for await (const lines of batches) {
      let text = ''
      for (const line of lines) {
        rows += 1
        if ('entry' in line) text += copyLine(line)
        else if (++count <= SHOWN_ERRORS) first.push(line)
      }
      onProgress(rows)
      if (text !== '') yield text
    }
  }
  await transaction.query(
    `CREATE TEMPORARY TABLE staged (
       line bigint, ${columns.map(({ column, type }) => `${column} ${type}`).join(', ')}
     ) ON COMMIT DROP`,
  )
  await pipeline(copyText(), transaction.copyIn('COPY staged FROM STDIN'), { signal })
  return { rows, errors: { first, count } }
}

/** Returns a line in COPY's text format (PostgreSQL manual, COPY, Text Format). */
function copyLine({ line, entry }: Extract<ImportLine, { entry: unknown }>): string {
  let text = `${line}`
  for (const value of entry) text += `\t${toCopyText(value)}`
  return `${text}\n`
}

/** Returns the errors of both, of which the first are shown. */
export function joinErrors(one: LineErrors, other: LineErrors): LineErrors {
  const first = [...one.first, ...other.first].sort((a, b) => a.line - b.line)
  return { first: first.slice(0, SHOWN_ERRORS), count: one.count + other.count }
}

/** Key of the advisory lock for imports. Without it, two imports could deadlock, because they lock rows in different orders. */
const IMPORT_LOCK = 7_301_482_266

/**
 * Finds the lines that repeat a petId and, if `mayExist` is false, the lines whose petId already has an entry. From then on, no
 * other import runs until the transaction ends.
 */
export async function findConflicts(transaction: Transaction, mayExist: boolean): Promise<LineErrors> {
  await transaction.query("SET LOCAL work_mem = '64MB'")
  await transaction.takeAdvisoryLock(IMPORT_LOCK)
  await transaction.query('ANALYZE staged (pet_id)')
  const conflicts = [
    `SELECT line, 'petId ' || pet_id || ' is in line ' || earlier || ' already' AS error
     FROM (SELECT line, pet_id, lag(line) OVER (PARTITION BY pet_id ORDER BY line) AS earlier FROM staged) AS repeated
     WHERE earlier IS NOT NULL`,
    `SELECT line, 'petId ' || pet_id || ' has an entry already' AS error
     FROM staged JOIN inventory USING (pet_id)`,
  ]
  const rows = await transaction.query<{ line: string; error: string; count: string }>(
    `SELECT line, error, count(*) OVER () AS count
     FROM (${conflicts.slice(0, mayExist ? 1 : 2).join(' UNION ALL ')}) AS conflicts
     ORDER BY line LIMIT ${SHOWN_ERRORS}`,
  )
  const first = rows.map(({ line, error }) => ({ line: Number(line), error }))
  return { first, count: Number(rows[0]?.count ?? 0) }
}
