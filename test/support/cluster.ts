import { execFile } from 'node:child_process'
import { mkdir, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { migrate } from '../../src/database/admin/migrate.ts'
import { startEmbeddedServer } from '../../src/local/embedded.ts'
import { createOnce } from '../../src/local/folder.ts'
import { copyPrograms } from '../../src/local/programs.ts'
import { onServer } from './on-server.ts'

const run = promisify(execFile)

/** A role that can do what the service needs, and no superuser. */
export const SERVICE = 'service'

let making: Promise<void> | undefined

/**
 * Fills a folder that does not exist with the data of an embedded server that has the newest schema, no rows, and the role
 * `SERVICE`. The first call in a run of the tests makes it; the others copy, as initdb takes ten times as long.
 */
export async function copyCluster(directory: string): Promise<void> {
  // The folder for temporary files is one of this run.
  const original = path.join(tmpdir(), 'cluster')
  // Two calls of one process would create it under the same temporary name.
  making ??= createOnce(original, makeCluster)
  await making
  await run('cp', ['-a', original, directory])
}

/** Fills a folder in the same way, with a cluster that PostgreSQL tells from all others by its system identifier. */
export async function makeCluster(directory: string): Promise<void> {
  await mkdir(directory)
  // The programs have sixty megabytes: all servers of a run share them.
  await copyPrograms(tmpdir())
  await symlink(path.join(tmpdir(), 'package'), path.join(directory, 'package'))
  const server = await startEmbeddedServer(directory, { fsync: 'off' })
  try {
    await migrate({ url: server.url, direction: 'up' })
    await onServer(
      server.url,
      `CREATE ROLE ${SERVICE} LOGIN; GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA public TO ${SERVICE}`,
    )
  } finally {
    await server.stop()
  }
}
