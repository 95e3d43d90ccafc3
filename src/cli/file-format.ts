import path from 'node:path'
import { Option } from 'commander'
import type { FileFormat } from '../inventory/transfer/export.ts'
import { exitCodes } from '../process/exit-codes.ts'
import { CommandFailure } from './failure.ts'

const formatOfExtension: Record<string, FileFormat> = {
  '.csv': 'csv',
  '.ndjson': 'ndjson',
  '.jsonl': 'ndjson',
}

/** Means standard input or standard output in place of a file name. */
export const STANDARD_STREAM = '-'

/** Creates the option `--format`. */
export function formatOption(): Option {
  return new Option(
    '--format <format>',
    'set the format; by default, it follows from the file name, and is csv for -',
  ).choices(['csv', 'ndjson'])
}

/**
 * The format of a file, from the extension of its name.
 *
 * @throws {CommandFailure} if the extension is unknown
 */
export function formatOf(file: string): FileFormat {
  if (file === STANDARD_STREAM) return 'csv'
  const format = formatOfExtension[path.extname(file).toLowerCase()]
  if (format !== undefined) return format
  throw new CommandFailure(
    `The name of ${file} does not show its format. Add --format csv or --format ndjson.`,
    exitCodes.wrongUsage,
  )
}
