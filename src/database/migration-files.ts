import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { Migration, type MigrationBuilder, type RunnerOption } from 'node-pg-migrate'

/** Plain SQL files, each with an up and a down part; the same place seen from `src` and from `dist`. */
export const MIGRATIONS_FOLDER = fileURLToPath(new URL('../../migrations', import.meta.url))

/** The first line of each part, as node-pg-migrate has it. What is in parentheses is this project's own. */
const PART_LINE = /^-- (Up|Down) Migration( \(no transaction\))?$/gm

/** One direction of a migration. */
export interface MigrationPart {
  /** What is sent to PostgreSQL in one message each: the whole part, or outside a transaction each statement. */
  readonly statements: readonly string[]
  /** False where the part runs outside a transaction, as `CREATE INDEX CONCURRENTLY` has to. */
  readonly isTransactional: boolean
  /** The line of the file that the part begins with, counted from 1. */
  readonly line: number
}

export interface MigrationFile {
  readonly name: string
  readonly up: MigrationPart
  readonly down: MigrationPart
  /** The SHA-256 of its text, the same for both kinds of line ends. */
  readonly checksum: string
}

/** A file in the folder of the migrations does not have the form of one. */
export class MigrationFileError extends Error {
  override readonly name = 'MigrationFileError'

  constructor(migration: string) {
    super(
      `migrations/${migration}.sql must have a line "-- Up Migration" and after it a line "-- Down Migration", ` +
        'each with " (no transaction)" at its end or without; nothing was changed.',
    )
  }
}

/** The names of all migrations that this version brings, in their order. */
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
 * @throws {MigrationFileError}
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
 * Splits where a line ends in a semicolon. Several statements in one message are a transaction (PostgreSQL manual,
 * 54.2.2.1), and a semicolon within a line may belong to a literal.
 */
function statementsOf(sql: string): string[] {
  return sql
    .split(/(?<=;)[ \t]*\n/)
    .map((statement) => statement.trim())
    .filter((statement) => statement.replaceAll(/^\s*--.*$/gm, '').trim() !== '')
}

/**
 * Has node-pg-migrate read the files as `readMigration` does; its own loader runs every SQL file in a transaction.
 * `onStart` is called when it begins with a migration.
 */
export function migrationLoader(
  onStart: (migration: MigrationFile, part: MigrationPart) => void,
): NonNullable<RunnerOption['migrationLoaderStrategies']>[number] {
  const load = async (file: string) => {
    const migration = await readMigration(path.basename(file, '.sql'))
    const action = (part: MigrationPart) => (pgm: MigrationBuilder) => {
      onStart(migration, part)
      if (!part.isTransactional) pgm.noTransaction()
      for (const statement of part.statements) pgm.sql(statement)
    }
    return {
      id: file,
      filePaths: [file],
      actions: { up: action(migration.up), down: action(migration.down) },
    }
  }
  return { extensions: ['.sql'], loader: (files) => Promise.all(files.map(load)) }
}

/**
 * Writes a new, empty migration into a folder, named after the present moment in UTC, and returns its path.
 * Where it is not to be transactional, it is one that builds an index without locking out writers.
 */
export function createMigration(name: string, folder: string, isTransactional: boolean): Promise<string> {
  const template = isTransactional ? '.template.sql' : '.template-no-transaction.sql'
  return Migration.create(name, folder, {
    filenameFormat: 'utc',
    templateFileName: path.join(MIGRATIONS_FOLDER, template),
  })
}
