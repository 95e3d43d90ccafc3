import { constants } from 'node:fs'
import { access } from 'node:fs/promises'
import path from 'node:path'

/** The folder of a version's programs: POSTGRES_14_BIN for one, else where Debian's packages have it. */
export async function programsOf(version: number): Promise<string | undefined> {
  const folder = process.env[`POSTGRES_${version}_BIN`] ?? `/usr/lib/postgresql/${version}/bin`
  const found = await access(path.join(folder, 'initdb'), constants.X_OK).then(
    () => true,
    () => false,
  )
  return found ? folder : undefined
}
