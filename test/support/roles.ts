import { randomBytes } from 'node:crypto'
import type { Test } from 'tap'
import { onServer } from './on-server.ts'

/** A role of a test's own, without any privileges. */
export type TestRole = Awaited<ReturnType<typeof testRole>>

/** Makes a role that may log in. To be called before the database is made, which has to go first. */
export async function testRole(t: Test) {
  const { TEST_SERVER_URL: serverUrl = '' } = process.env
  const name = `test_role_${randomBytes(8).toString('hex')}`
  const password = randomBytes(16).toString('hex')
  await onServer(serverUrl, `CREATE ROLE ${name} LOGIN PASSWORD '${password}'`)
  t.teardown(() => onServer(serverUrl, `DROP ROLE ${name}`))
  return {
    name,
    /** Occurs nowhere else, so that a text can be searched for it. */
    password,
    /** The address of a database as this role. */
    urlOf(databaseUrl: string): string {
      const url = new URL(databaseUrl)
      url.username = name
      url.password = password
      return url.href
    },
  }
}
