import { createReadStream, fstatSync, openSync } from 'node:fs'
import { addAbortSignal } from 'node:stream'
import { type Command, Option } from 'commander'
import { hasReason } from '../database/statement-error.ts'
import { type ImportCounts, type ImportMode, mergeStaged } from '../inventory/transfer/import.ts'
import { InvalidInputError } from '../inventory/transfer/lines.ts'
import { COUNT_ROWS, FILE_COLUMNS } from '../inventory/transfer/rows.ts'
import { checkStaged, stageCsv } from '../inventory/transfer/staging.ts'
import { report } from '../process/terminal.ts'
import { integerFrom } from './arguments.ts'
import { change } from './database.ts'
import { CommandFailure, exitCodes, unconfirmed } from './failure.ts'
import { formatNumber, print } from './output.ts'
import { withProgress } from './progress.ts'

interface ImportOptions {
  readonly rows?: number
  readonly mode: ImportMode
  readonly dryRun?: true
  readonly allowRemovals?: true
}

const PIPE_EXAMPLE = `awk 1 stock.csv | inventory import - --rows "$(${COUNT_ROWS} stock.csv)"`

const HOW_TO_COUNT = `count its rows with "${COUNT_ROWS} FILE"; convert it first if it is in UTF-16 ("iconv -f UTF-16 -t UTF-8 FILE") or its lines end in CR alone ("tr '\\r' '\\n' <FILE")`

/** Adds `inventory import`. */
export function addImportCommand(program: Command, databaseUrl: () => Promise<string>): void {
  program
    .command('import')
    .description('import the entries of a CSV file, all or none')
    .argument('<file>', `CSV with ${FILE_COLUMNS}; - for standard input, with --rows`)
    .option('--rows <count>', 'refuse the input unless it has exactly this many rows', integerFrom(0))
    .addOption(
      new Option('--mode <mode>', 'add and change entries, or replace the whole inventory')
        .choices(['upsert', 'replace'])
        .default('upsert'),
    )
    .option('--allow-removals', 'allow --mode replace to remove more than a tenth of the entries')
    .option('--dry-run', 'check the file and report what would change, but change nothing')
    .addHelpText('after', '\nExample:\n  inventory import stock.csv --dry-run')
    .action(async (file: string, options: ImportOptions) => {
      const { mode, dryRun } = options
      const source = openSource(file, options.rows)
      try {
        const url = await databaseUrl()
        const counts = await importFrom(source, url, options)
        const parts = Object.entries(counts).filter(([part]) => part !== 'removed' || mode === 'replace')
        const changes = parts.map(([part, count]) => `${formatNumber(count)} ${part}`).join(', ')
        await print(dryRun ? `Dry run: nothing was changed. The import would be: ${changes}` : changes)
      } catch (error) {
        throw explainRefusal(error, source.name)
      } finally {
        // Open standard input would keep the process alive.
        source.stream.destroy()
      }
    })
}

async function importFrom(
  source: ReturnType<typeof openSource>,
  url: string,
  { rows: expectedRows, mode, dryRun, allowRemovals }: ImportOptions,
): Promise<ImportCounts> {
  return change(url, async (transaction, signal) => {
    // A pipeline waits for the chunk that its source is reading, which may never arrive on standard input.
    addAbortSignal(signal, source.stream)
    let readRows = 0
    const { rows, endsInNewline, errors } = await withProgress(
      () => `Reading ${source.name}: ${source.percentage()}${formatNumber(readRows)} rows`,
      () => stageCsv(transaction, source.stream, signal, (rows) => (readRows = rows)),
    )
    if (source.isPipe && !endsInNewline)
      throw new InvalidInputError(
        `does not end in a newline, so it may be incomplete; if the file really ends like that, send it with "awk 1 FILE", and ${HOW_TO_COUNT}`,
      )
    if (expectedRows !== undefined && rows !== expectedRows)
      throw new InvalidInputError(
        `has ${formatNumber(rows)} rows instead of the expected ${formatNumber(expectedRows)}; ${HOW_TO_COUNT}`,
      )
    const counts = await withProgress(
      () => `Changing the inventory: ${formatNumber(rows)} rows`,
      async () => {
        await checkStaged(transaction, errors)
        return mergeStaged(transaction, mode, rows)
      },
    )
    if (source.hasChanged()) throw new InvalidInputError('changed during the import, so it may be incomplete')
    if (dryRun) await transaction.query('ROLLBACK AND CHAIN')
    else if (!allowRemovals) refuseManyRemovals(counts)
    return counts
  })
}

/** More than a tenth of the entries to remove suggests a wrong file. */
function refuseManyRemovals({ changed, unchanged, removed }: ImportCounts): void {
  const total = changed + unchanged + removed
  if (removed * 10 <= total) return
  const consequence = `--mode replace would remove ${formatNumber(removed)} of ${formatNumber(total)} entries`
  throw unconfirmed(consequence, '--allow-removals')
}

/** Returns the failure of an import whose input is wrong, or whose entries the operator's own constraint or trigger rejects. */
function explainRefusal(error: unknown, name: string): unknown {
  if (error instanceof InvalidInputError) {
    for (const { line, error: reason } of error.lines) report(`line ${line}: ${reason}`)
    return new CommandFailure(`${name} ${error.message}; nothing was changed`, exitCodes.refused)
  }
  if (!hasReason(error, 'rule')) return error
  const message = `The database rejects the entries: ${error.detailedMessage}; nothing was changed.`
  return new CommandFailure(message, exitCodes.refused)
}

/**
 * Opens a file by its name, or standard input by `-`. The end of a pipe does not prove that all of it arrived: the operator must know
 * the number of its rows.
 *
 * @throws {CommandFailure} if it is standard input with an unknown number of rows, or a pipe by its name
 * @throws the error of a system call; the stream reports others, such as that of a folder
 */
function openSource(file: string, expectedRows: number | undefined) {
  const isStandardInput = file === '-'
  const fd = isStandardInput ? 0 : openSync(file, 'r')
  const opened = fstatSync(fd)
  const isPipe = !opened.isFile() && !opened.isDirectory()
  if (isPipe && (!isStandardInput || expectedRows === undefined)) {
    throw new CommandFailure(
      'Nothing was done, because only the end of a file proves that all of it arrived. For a pipe, add the number of its rows without the header:',
      exitCodes.wrongUsage,
      [PIPE_EXAMPLE],
    )
  }
  // Stays open until it is destroyed, as standard input does.
  const stream = isStandardInput ? process.stdin : createReadStream(file, { fd, autoClose: false })
  // Whoever reads the stream gets the error, also an earlier one.
  stream.on('error', () => {})
  return {
    name: isStandardInput ? 'standard input' : file,
    stream,
    isPipe,
    /** How much was read, such as "42 %, "; empty for a pipe, whose length is unknown. */
    percentage: () => (isPipe ? '' : `${Math.floor((100 * stream.bytesRead) / opened.size)} %, `),
    /** Whether another program has written to the file since. */
    hasChanged: () => !isPipe && fstatSync(fd).mtimeMs !== opened.mtimeMs,
  }
}
