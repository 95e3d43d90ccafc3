import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { migrate } from '../../src/database/migrations.ts'

/** A database with the newest schema and no rows, which each test file clones. */
export interface Template {
  readonly name: string
  drop(): Promise<void>
}

export async function makeTemplate(serverUrl: string): Promise<Template> {
  const name = `test_template_${randomBytes(6).toString('hex')}`
  await onServer(serverUrl, `CREATE DATABASE ${name}`)
  await migrate({ url: urlOf(serverUrl, name), direction: 'up', log: () => {} })
  return { name, drop: () => onServer(serverUrl, `DROP DATABASE ${name} WITH (FORCE)`) }
}

/** The address of another database of the same server. */
export function urlOf(serverUrl: string, database: string): string {
  const url = new URL(serverUrl)
  url.pathname = `/${database}`
  return url.href
}

/** Runs one statement outside any of the tests' databases. */
export async function onServer(serverUrl: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: serverUrl })
  await client.connect()
  try {
    await client.query(statement)
  } finally {
    await client.end()
  }
}
