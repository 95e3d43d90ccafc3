import { execFile } from 'node:child_process'
import { constants } from 'node:fs'
import { access } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** The folder of a version's programs: POSTGRES_14_BIN for one, else where Debian's packages have it. */
export async function programsOf(version: number): Promise<string | undefined> {
  const folder = process.env[`POSTGRES_${version}_BIN`] ?? `/usr/lib/postgresql/${version}/bin`
  const found = await access(path.join(folder, 'initdb'), constants.X_OK).then(
    () => true,
    () => false,
  )
  return found ? folder : undefined
}

/** The folder of the programs of a PostgreSQL that Citus is installed into: CITUS_BIN says which. */
export async function citusPrograms(): Promise<string | undefined> {
  const folder = process.env['CITUS_BIN']
  if (folder === undefined || folder === '') return undefined
  try {
    const programs = ['initdb', 'pg_ctl', 'pg_config']
    await Promise.all(programs.map((name) => access(path.join(folder, name), constants.X_OK)))
    const { stdout } = await run(path.join(folder, 'pg_config'), ['--sharedir'])
    await access(path.join(stdout.trim(), 'extension', 'citus.control'))
    return folder
  } catch {
    return undefined
  }
}
