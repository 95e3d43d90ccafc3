import { readFile } from 'node:fs/promises'
import path from 'node:path'
import pg from 'pg'
import { MIGRATIONS_FOLDER } from './migrations.ts'

/** Which role, if any, is the server's, and which one the operators'. The owner of the tables needs no grants. */
export type Roles = Readonly<Partial<Record<'server' | 'operator', string | undefined>>>

/**
 * Returns the statements of `migrations/grants.sql` that grant each role what it needs, and revoke from the server's role what only
 * version 2.0.0 needed. They fail if PostgreSQL has only sent a warning and not made a grant.
 *
 * @param database the name of the database
 * @param schema the schema of the tables
 */
export async function grantsFor(roles: Roles, database: string, schema: string): Promise<string> {
  const text = await readFile(path.join(MIGRATIONS_FOLDER, 'grants.sql'), 'utf8')
  const [, server, operator, both] = text.split(/^-- (?:Server|Operators|Both)$/m)
  const grants = (part: string | undefined, role: string | undefined): string =>
    role === undefined
      ? ''
      : `${part}${both}`
          .replaceAll('{database}', () => pg.escapeIdentifier(database))
          .replaceAll('{schema}', () => pg.escapeIdentifier(schema))
          .replaceAll('{role}', () => pg.escapeIdentifier(role))
          .replaceAll('{name}', () => pg.escapeLiteral(role))
  return grants(server, roles.server) + grants(operator, roles.operator)
}
