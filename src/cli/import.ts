import { open } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { type Command, Option } from 'commander'
import { inTransaction } from '../database/transaction.ts'
import {
  type Conflict,
  type FileFormat,
  findConflicts,
  type ImportCounts,
  type ImportMode,
  mergeStaged,
  previewImport,
  stagedText,
  stageEntries,
} from '../inventory/bulk.ts'
import { readCsv } from '../inventory/csv.ts'
import type { ImportLine } from '../inventory/import-line.ts'
import { readNdjson } from '../inventory/ndjson.ts'
import { exitCodes } from './exit-codes.ts'
import { CommandFailure } from './failure.ts'
import { formatOf, formatOption, STANDARD_STREAM } from './file-format.ts'
import { untilInterrupted } from './interruption.ts'
import { print } from './output.ts'
import { formatNumber, startProgress } from './progress.ts'

/** How many faults are shown; the others are counted. */
const SHOWN_FAULTS = 20

const readers: Record<FileFormat, (source: AsyncIterable<Buffer>) => AsyncIterable<ImportLine[]>> = {
  csv: readCsv,
  ndjson: readNdjson,
}

interface ImportOptions {
  readonly format?: FileFormat
  readonly mode: ImportMode
  readonly dryRun?: true
}

/** Adds `inventory import`. */
export function addImportCommand(program: Command, databaseUrl: () => Promise<string>): void {
  program
    .command('import')
    .description('write the entries of a file into the inventory, all or none')
    .argument('<file>', 'CSV or NDJSON with petId, quantity and an optional status; - for standard input')
    .addOption(formatOption())
    .addOption(
      new Option(
        '--mode <mode>',
        'add and change entries, only add them, or make the file the whole inventory',
      )
        .choices(['upsert', 'insert', 'replace'])
        .default('upsert'),
    )
    .option('--dry-run', 'check the file and say what would change, but change nothing')
    .addHelpText('after', '\nExample:\n  inventory import stock.csv --dry-run')
    .action(async (file: string, options: ImportOptions) => {
      const outcome = await importFile(await databaseUrl(), file, options.format ?? formatOf(file), options)
      if ('counts' in outcome) {
        const report = reportOf(outcome.counts, options)
        await print(report, options.dryRun ? undefined : report)
      } else {
        console.error(faultReport(file, outcome.faults))
        process.exitCode = exitCodes.refused
      }
    })
}

/** A file's faults in the order of their lines, as many as are shown, and how many there are. */
interface Faults {
  readonly first: readonly Conflict[]
  readonly count: number
}

/** Raised inside the transaction, for nothing of it to stay. */
class FaultyFileError extends Error {
  readonly faults: Faults

  constructor(faults: Faults) {
    super('The file has faults')
    this.faults = faults
  }
}

async function importFile(
  url: string,
  file: string,
  format: FileFormat,
  { mode, dryRun }: ImportOptions,
): Promise<{ counts: ImportCounts } | { faults: Faults }> {
  const { bytes, size } = await openSource(file)
  const { signal, onCommit } = untilInterrupted()
  // A pipeline waits for the piece that its source is reading, which on standard input may never come.
  signal.addEventListener('abort', () => bytes.destroy(), { once: true })
  try {
    const counts = await inTransaction({ url, readOnly: false, signal, onCommit }, async (transaction) => {
      const progress = startProgress('reading', size)
      const staging = new Staging()
      const reading = new Counted(bytes, (count) => progress.update(staging.rows, count))
      try {
        const lines = readers[format](reading)
        await pipeline(lines, (source) => staging.textOf(source), await stageEntries(transaction), { signal })
        progress.update(staging.rows, reading.bytes)
      } finally {
        progress.stop()
      }
      console.error(`${formatNumber(staging.rows)} rows read; ${dryRun ? 'comparing' : 'writing'}`)
      const conflicts = await findConflicts(transaction, mode, SHOWN_FAULTS)
      const faults = staging.faultsWith(conflicts)
      if (faults.count > 0) throw new FaultyFileError(faults)
      if (mode === 'replace' && staging.rows === 0) {
        throw new CommandFailure(
          'The file has no entries; to replace the inventory by it would remove them all.',
        )
      }
      return await (dryRun ? previewImport : mergeStaged)(transaction, mode)
    })
    return { counts }
  } catch (error) {
    if (error instanceof FaultyFileError) return { faults: error.faults }
    throw error
  } finally {
    // Standard input that stays open would keep the process.
    bytes.destroy()
  }
}

/** What is read so far: it makes text for the staging table of right lines, and keeps the first of the faults. */
class Staging {
  rows = 0
  readonly #first: Conflict[] = []
  #count = 0

  async *textOf(batches: AsyncIterable<ImportLine[]>): AsyncGenerator<string> {
    for await (const batch of batches) {
      let text = ''
      for (const line of batch) {
        this.rows += 1
        if ('entry' in line) text += stagedText(line.number, line.entry)
        else this.#add(line.number, line.fault)
      }
      if (text !== '') yield text
    }
  }

  /** All faults, those of single lines and those of lines beside each other. */
  faultsWith(conflicts: Faults): Faults {
    const first = [...this.#first, ...conflicts.first].sort((one, other) => one.line - other.line)
    return { first: first.slice(0, SHOWN_FAULTS), count: this.#count + conflicts.count }
  }

  #add(line: number, fault: string): void {
    this.#count += 1
    if (this.#first.length < SHOWN_FAULTS) this.#first.push({ line, fault })
  }
}

/** Opens a file, or standard input, whose size is not known. */
async function openSource(file: string): Promise<{ bytes: Readable; size: number | undefined }> {
  if (file === STANDARD_STREAM) return { bytes: process.stdin, size: undefined }
  try {
    const handle = await open(file)
    const found = await handle.stat()
    if (!found.isDirectory()) {
      const bytes = handle.createReadStream()
      return { bytes, size: found.isFile() ? found.size : undefined }
    }
    await handle.close()
  } catch (error) {
    throw new CommandFailure(`The file cannot be read: ${error instanceof Error ? error.message : error}`)
  }
  throw new CommandFailure(`The file cannot be read: ${file} is a folder`)
}

/** What comes out of a source, with the count of its bytes so far. */
class Counted implements AsyncIterable<Buffer> {
  bytes = 0
  readonly #source: AsyncIterable<Buffer>
  readonly #tell: (bytes: number) => void

  constructor(source: AsyncIterable<Buffer>, tell: (bytes: number) => void) {
    this.#source = source
    this.#tell = tell
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer> {
    for await (const chunk of this.#source) {
      this.bytes += chunk.length
      this.#tell(this.bytes)
      yield chunk
    }
  }
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
  return `${dryRun ? 'Dry run, nothing was changed. It would be: ' : ''}${parts.join(', ')}`
}

function faultReport(file: string, { first, count }: Faults): string {
  const name = file === STANDARD_STREAM ? 'standard input' : file
  const more = count - first.length
  return [
    ...first.map(({ line, fault }) => `line ${line}: ${fault}`),
    ...(more > 0 ? [`and ${formatNumber(more)} more`] : []),
    `inventory: ${name} has ${formatNumber(count)} ${count === 1 ? 'fault' : 'faults'}; nothing was changed`,
  ].join('\n')
}
