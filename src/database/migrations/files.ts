import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { MigrationError } from './errors.ts'

/** Contains one SQL file per migration, each with an up and a down part. The relative path is valid in `src` and `dist`. */
export const MIGRATIONS_FOLDER = fileURLToPath(new URL('../../../migrations', import.meta.url))

/** The first line of each part, in the format of node-pg-migrate. */
const PART_LINE = /^-- (Up|Down) Migration$/gm

/** One direction of a migration. */
export interface MigrationPart {
  /** Any number of statements, sent to PostgreSQL as one text. */
  readonly sql: string
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
 * @throws {MigrationError} if the file is not a valid migration
 */
export async function readMigration(name: string): Promise<MigrationFile> {
  const raw = await readFile(path.join(MIGRATIONS_FOLDER, `${name}.sql`), 'utf8')
  const text = raw.replaceAll('\r\n', '\n')
  const [up, down, ...others] = text.matchAll(PART_LINE)
  if (up?.[1] !== 'Up' || down?.[1] !== 'Down' || others.length > 0) {
    throw new MigrationError(
      `migrations/${name}.sql must have a line "-- Up Migration" and after it a line "-- Down Migration"; nothing was changed.`,
    )
  }
  const part = (start: number, end?: number): MigrationPart => ({
    sql: text.slice(start, end),
    line: text.slice(0, start).split('\n').length,
  })
  return {
    name,
    up: part(up.index, down.index),
    down: part(down.index),
    checksum: createHash('sha256').update(text).digest('hex'),
  }
}

/** Creates a migration from a template, with the current time (UTC) in its file name, and returns its path. */
export async function createMigration(name: string, folder: string): Promise<string> {
  const { Migration } = await import('node-pg-migrate')
  return Migration.create(name, folder, {
    filenameFormat: 'utc',
    templateFileName: path.join(MIGRATIONS_FOLDER, '.template.sql'),
  })
}
