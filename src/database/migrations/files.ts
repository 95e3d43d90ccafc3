import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

/** Contains one SQL file per migration, each with an up and a down part. The relative path is valid in `src` and `dist`. */
export const MIGRATIONS_FOLDER = fileURLToPath(new URL('../../../migrations', import.meta.url))

/** The first line of each part, in the format of node-pg-migrate. "(no transaction)" is an extension of this project. */
const PART_LINE = /^-- (Up|Down) Migration( \(no transaction\))?$/gm

/** One direction of a migration. */
export interface MigrationPart {
  /** The texts to send to PostgreSQL one after another: the whole part, or each statement if it runs outside a transaction. */
  readonly statements: readonly string[]
  /** False if the part runs outside a transaction, as `CREATE INDEX CONCURRENTLY` requires. */
  readonly isTransactional: boolean
  /** The number of the part's first line in the file, counted from 1. */
  readonly line: number
}

export interface MigrationFile {
  readonly name: string
  readonly up: MigrationPart
  readonly down: MigrationPart
  /** The SHA-256 of the text in hexadecimal. It does not depend on the kind of line endings. */
  readonly checksum: string
}

/** A file in the migrations folder is not a valid migration. */
export class MigrationFileError extends Error {
  override readonly name = 'MigrationFileError'

  constructor(migration: string) {
    super(
      `migrations/${migration}.sql must have a line "-- Up Migration" and after it a line "-- Down Migration", ` +
        'each with " (no transaction)" at its end or without; nothing was changed.',
    )
  }
}

/** Returns the names of all migrations of this version, oldest first. */
export async function knownMigrations(): Promise<string[]> {
  const files = await readdir(MIGRATIONS_FOLDER)
  return files
    .filter((file) => !file.startsWith('.') && file.endsWith('.sql'))
    .map((file) => file.slice(0, -'.sql'.length))
    .sort()
}

/**
 * Reads a migration of this version.
 *
 * @throws {MigrationFileError} if the file is not a valid migration
 */
export async function readMigration(name: string): Promise<MigrationFile> {
  const raw = await readFile(path.join(MIGRATIONS_FOLDER, `${name}.sql`), 'utf8')
  const text = raw.replaceAll('\r\n', '\n')
  const [up, down, ...others] = text.matchAll(PART_LINE)
  if (up?.[1] !== 'Up' || down?.[1] !== 'Down' || others.length > 0) throw new MigrationFileError(name)
  return {
    name,
    up: partOf(text, up, down.index),
    down: partOf(text, down, text.length),
    checksum: createHash('sha256').update(text).digest('hex'),
  }
}

function partOf(text: string, { index, 2: mark }: RegExpExecArray, end: number): MigrationPart {
  const sql = text.slice(index, end)
  const isTransactional = mark === undefined
  return {
    statements: isTransactional ? [sql] : statementsOf(sql),
    isTransactional,
    line: text.slice(0, index).split('\n').length,
  }
}

/**
 * Splits SQL into statements after each line that ends in a semicolon, because PostgreSQL runs several statements in one
 * message as a transaction (manual, section 54.2.2.1). A semicolon within a line may be part of a literal.
 */
function statementsOf(sql: string): string[] {
  return sql
    .split(/(?<=;)[ \t]*\n/)
    .map((statement) => statement.trim())
    .filter((statement) => statement.replaceAll(/^\s*--.*$/gm, '').trim() !== '')
}
