import { randomBytes } from 'node:crypto'
import { migrate } from '../../src/database/migrate.ts'
import { onServer } from './on-server.ts'

/** A database with the newest schema and no rows, which tests clone. */
export interface Template {
  readonly name: string
  /** How `CREATE DATABASE … TEMPLATE …` copies a small database fastest: an option, empty before PostgreSQL 15. */
  readonly strategy: string
  drop(): Promise<void>
}

export async function makeTemplate(serverUrl: string): Promise<Template> {
  const name = `test_template_${randomBytes(6).toString('hex')}`
  await onServer(serverUrl, `CREATE DATABASE ${name}`)
  await migrate({ url: urlOf(serverUrl, name), direction: 'up' })
  const drop = async (): Promise<void> => {
    await onServer(serverUrl, `DROP DATABASE ${name} WITH (FORCE)`)
  }
  // PostgreSQL's default writes every page of the template to the write-ahead log, for twice the processor time.
  const strategy = (await majorVersion(serverUrl)) >= 15 ? 'STRATEGY FILE_COPY' : ''
  return { name, strategy, drop }
}

/** The address of another database of the same server. */
export function urlOf(serverUrl: string, database: string): string {
  const url = new URL(serverUrl)
  url.pathname = `/${database}`
  return url.href
}

async function majorVersion(serverUrl: string): Promise<number> {
  const [row] = await onServer(serverUrl, 'SHOW server_version_num')
  return Math.floor(Number(row?.['server_version_num']) / 10_000)
}
