import { execFile } from 'node:child_process'
import { mkdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { migrate } from '../../src/database/migrate.ts'
import { createFolderOnce } from '../../src/local/create-once.ts'
import { startEmbeddedServer } from '../../src/local/embedded.ts'

const run = promisify(execFile)

/** A role that can do what the server needs, and no superuser. */
export const SERVICE = 'service'
const PASSWORD = 'of-a-test'
/** The folder for temporary files is one of this run. */
const ORIGINAL = path.join(tmpdir(), 'cluster')
let made: Promise<void> | undefined

/**
 * Fills a folder that does not exist with the data of an embedded server that has the newest schema, no rows, and the role
 * `SERVICE`. The first call in a run of the tests makes it; the others copy, as initdb takes ten times as long.
 */
export async function copyCluster(directory: string): Promise<void> {
  made ??= createFolderOnce(ORIGINAL, makeCluster)
  await made
  await mkdir(directory)
  await run('cp', ['-a', `${ORIGINAL}/.`, directory])
}

/** The address of a database for the role `SERVICE`. */
export function asService(superuserUrl: string): string {
  const url = new URL(superuserUrl)
  url.username = SERVICE
  url.password = PASSWORD
  return url.href
}

/** Fills a folder in the same way, with a cluster that PostgreSQL tells from all others by its system identifier. */
export async function makeCluster(directory: string): Promise<void> {
  const server = await startEmbeddedServer({ directory, settings: { fsync: 'off' } })
  try {
    await migrate({ url: server.url, direction: 'up' })
    const client = new pg.Client({ connectionString: server.url })
    await client.connect()
    await client.query(
      `CREATE ROLE ${SERVICE} LOGIN PASSWORD '${PASSWORD}';
       GRANT SELECT, UPDATE ON ALL TABLES IN SCHEMA public TO ${SERVICE}`,
    )
    await client.end()
  } finally {
    await server.stop()
  }
}
