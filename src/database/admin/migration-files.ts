import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import type { MigrationBuilder } from 'node-pg-migrate'

/** Contains one SQL file per migration, each with an up and a down part. The relative path is valid in `src` and `dist`. */
export const MIGRATIONS_FOLDER = fileURLToPath(new URL('../../../migrations', import.meta.url))

/** Returns the names of all migrations of this version, oldest first. */
export async function knownMigrations(): Promise<string[]> {
  const files = await readdir(MIGRATIONS_FOLDER)
  return files.flatMap((file) => /^(\d+_.*)\.sql$/.exec(file)?.[1] ?? []).sort()
}

/** Returns the text of a file of the folder that is no migration. */
export function readScript(name: string): Promise<string> {
  return readFile(path.join(MIGRATIONS_FOLDER, name), 'utf8')
}

/**
 * Returns a loader of files with an up and a down part, in this order, that calls `onRun` when one of them runs. They run in the
 * transaction of the connection.
 */
export function migrationLoader(onRun: (name: string) => void) {
  const load = async (file: string) => {
    const text = `\n${await readFile(file, 'utf8')}`
    const [head = '', up = head, down = ''] = text.split(/^(?=-- (?:Up|Down) Migration)/im)
    const action = (sql: string) => (builder: MigrationBuilder) => {
      onRun(path.basename(file, '.sql'))
      builder.noTransaction()
      builder.sql(sql)
    }
    return { id: file, filePaths: [file], actions: { up: action(up), down: action(down) } }
  }
  return { extensions: ['.sql'], loader: (files: string[]) => Promise.all(files.map(load)) }
}

/** Creates a migration from a template, with the current time (UTC) in its file name, and returns its path. */
export async function createMigration(name: string, folder: string): Promise<string> {
  const { Migration } = await import('node-pg-migrate')
  const templateFileName = path.join(MIGRATIONS_FOLDER, '.template.sql')
  return Migration.create(name, folder, { filenameFormat: 'utc', templateFileName })
}
