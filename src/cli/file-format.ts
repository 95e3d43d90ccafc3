import path from 'node:path'
import { Option } from 'commander'
import type { FileFormat } from '../inventory/transfer/bulk.ts'
import { CommandFailure } from './failure.ts'

const formatOfExtension: Record<string, FileFormat> = {
  '.csv': 'csv',
  '.ndjson': 'ndjson',
  '.jsonl': 'ndjson',
}

/** What stands for standard input or standard output in the place of a file's name. */
export const STANDARD_STREAM = '-'

export function formatOption(): Option {
  return new Option('--format <format>', 'by default what the name of the file ends in, csv for -').choices([
    'csv',
    'ndjson',
  ])
}

/** The format of a file by its name. */
export function formatOf(file: string): FileFormat {
  if (file === STANDARD_STREAM) return 'csv'
  const format = formatOfExtension[path.extname(file).toLowerCase()]
  if (format !== undefined) return format
  throw new CommandFailure(
    `The format of ${file} cannot be told from its name; add --format csv or --format ndjson.`,
  )
}
