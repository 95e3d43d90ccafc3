import { type Command, Option } from 'commander'
import { isRuleViolation, messageWithDetail } from '../database/error-meaning.ts'
import { inTransaction, type Transaction } from '../database/transaction.ts'
import { readCsv } from '../inventory/transfer/csv.ts'
import type { FileFormat } from '../inventory/transfer/export.ts'
import {
  type ImportCounts,
  type ImportMode,
  listChanges,
  mergeStaged,
  previewImport,
} from '../inventory/transfer/import.ts'
import { type ImportLine, optionalFields, requiredFields } from '../inventory/transfer/import-line.ts'
import { readNdjson } from '../inventory/transfer/ndjson.ts'
import { findConflicts, InvalidInputError, joinErrors, stageLines } from '../inventory/transfer/staging.ts'
import { exitCodes } from '../process/exit-codes.ts'
import { abortOnSignals } from '../process/signals.ts'
import { CONFIRMATION_TIMEOUT_MS, confirm } from './confirmation.ts'
import { CommandFailure } from './failure.ts'
import { formatOf, formatOption } from './file-format.ts'
import { addInputOptions, type ExpectedInput, ImportSource } from './import-source.ts'
import { print, writeOutput } from './output.ts'
import { formatCount, formatNumber, reportProgress } from './progress.ts'

const readers: Record<FileFormat, (source: AsyncIterable<Buffer>) => AsyncIterable<ImportLine[]>> = {
  csv: readCsv,
  ndjson: readNdjson,
}

interface ImportOptions extends ExpectedInput {
  readonly format?: FileFormat
  readonly mode: ImportMode
  readonly dryRun?: true
  readonly show?: true
  readonly allowRemovals?: true
}

/** Adds `inventory import`. */
export function addImportCommand(program: Command, databaseUrl: () => Promise<string>): void {
  const command = program
    .command('import')
    .description('import the entries of a file, all or none')
    .argument(
      '<file>',
      `CSV or NDJSON with ${requiredFields.join(', ')}, optionally ${optionalFields.join(', ')}; - for standard input, with --rows, --sha256 or --unverified`,
    )
    .addOption(formatOption())
    .addOption(
      new Option('--mode <mode>', 'add and change entries, only add them, or replace the whole inventory')
        .choices(['upsert', 'insert', 'replace'])
        .default('upsert'),
    )
    .option('--allow-removals', 'allow --mode replace to remove more than a tenth of the entries')
    .option('--dry-run', 'check the file and report what would change, but change nothing')
    .option('--show', 'with --dry-run, list the changes as CSV on standard output')
  addInputOptions(command)
    .addHelpText('after', '\nExample:\n  inventory import stock.csv --dry-run')
    .action(async (file: string, options: ImportOptions) => {
      if (options.show && !options.dryRun) {
        command.error("error: option '--show' needs '--dry-run'")
      }
      const format = options.format ?? formatOf(file)
      const source = await ImportSource.open(file, options)
      try {
        const report = reportOf(await importFrom(source, await databaseUrl(), format, options), options)
        // Standard output has the list of changes, for programs to read.
        if (options.show) console.error(report)
        else await print(report, options.dryRun ? undefined : report)
      } catch (error) {
        if (!(error instanceof InvalidInputError)) throw error
        console.error(errorReport(source.name, error))
        process.exitCode = exitCodes.refused
      } finally {
        await source.close()
      }
    })
}

async function importFrom(
  source: ImportSource,
  url: string,
  format: FileFormat,
  { mode, dryRun, show, allowRemovals }: ImportOptions,
): Promise<ImportCounts> {
  const { signal, onCommit } = abortOnSignals()
  // A pipeline waits for the chunk that its source is reading, which may never arrive on standard input.
  signal.addEventListener('abort', () => source.abort(), { once: true })
  return inTransaction({ url, readOnly: false, signal, onCommit }, async (transaction) => {
    const readProgress = reportProgress('reading', source.size)
    const staged = await stageLines(transaction, readers[format](source), signal, (rows) =>
      readProgress(rows, source.bytes),
    )
    const { rows } = staged
    const sourceError = await source.findError(rows)
    console.error(`${formatCount(rows, 'row', 'rows')} read; checking`)
    // If the input is incomplete, conflicts between its lines do not matter.
    if (sourceError) throw new InvalidInputError(staged.errors, sourceError)
    const errors = joinErrors(staged.errors, await findConflicts(transaction, mode !== 'insert'))
    if (errors.count > 0) throw new InvalidInputError(errors)
    if (mode === 'replace' && rows === 0) {
      throw new CommandFailure(
        'The file has no entries; to replace the inventory by it would remove them all.',
      )
    }
    if (show) await writeOutput(listChanges(transaction, mode), signal)
    if (dryRun) return previewImport(transaction, mode)
    if (mode === 'replace' && !allowRemovals) await confirmRemovals(transaction, signal)
    console.error(`${formatCount(rows, 'row', 'rows')} checked; writing`)
    const progress = reportProgress('writing', rows)
    return mergeStaged(transaction, mode, (part) => progress(part * rows, part * rows))
  }).catch(explainViolation)
}

/** Explains that a constraint or trigger of the operator's own, or an entry that was added meanwhile, rejects the entries. */
function explainViolation(error: unknown): never {
  if (!isRuleViolation(error)) throw error
  throw new CommandFailure(
    `The database rejects the entries: ${messageWithDetail(error)}; nothing was changed.`,
    exitCodes.refused,
  )
}

/** Asks the operator to confirm the removal of more than a tenth of the entries, which suggests a wrong file. */
async function confirmRemovals(transaction: Transaction, signal: AbortSignal): Promise<void> {
  const { changed, unchanged, removed } = await previewImport(transaction, 'replace')
  const total = changed + unchanged + removed
  if (removed * 10 <= total) return
  const consequence = `--mode replace would remove ${formatNumber(removed)} of ${formatNumber(total)} entries`
  await transaction.allowIdle(2 * CONFIRMATION_TIMEOUT_MS, () =>
    confirm(consequence, '--allow-removals', signal),
  )
}

function reportOf(
  { added, changed, unchanged, removed }: ImportCounts,
  { mode, dryRun }: ImportOptions,
): string {
  const parts = [
    `${formatNumber(added)} added`,
    `${formatNumber(changed)} changed`,
    `${formatNumber(unchanged)} unchanged`,
    ...(mode === 'replace' ? [`${formatNumber(removed)} removed`] : []),
  ]
  return `${dryRun ? 'Dry run: nothing was changed. The import would be: ' : ''}${parts.join(', ')}`
}

function errorReport(name: string, { errors: { first, count }, sourceError }: InvalidInputError): string {
  const more = count - first.length
  const summary = [
    ...(count > 0 ? [`has ${formatCount(count, 'error', 'errors')}`] : []),
    ...(sourceError === undefined ? [] : [`is incomplete, or not the expected input: ${sourceError}`]),
  ]
  return [
    ...first.map(({ line, error }) => `line ${line}: ${error}`),
    ...(more > 0 ? [`and ${formatNumber(more)} more`] : []),
    `inventory: ${name} ${summary.join(', and ')}; nothing was changed`,
  ].join('\n')
}
