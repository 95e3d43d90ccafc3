import type { Privileges } from './database/migrations/privileges.ts'

/** What the server and the commands of operators do with the tables. docs/integrations.md has the same for operators. */
export const privileges: Privileges = {
  server: [
    { kind: 'SELECT', table: 'inventory' },
    { kind: 'UPDATE', table: 'inventory', column: 'quantity' },
    { kind: 'SELECT', table: 'api_keys' },
    { kind: 'UPDATE', table: 'api_keys', column: 'last_used_at' },
    { kind: 'SELECT', table: 'pgmigrations' },
    { kind: 'SELECT', table: 'inventory_history', column: 'statement_id' },
    { kind: 'SELECT', table: 'inventory_history', column: 'changed_at' },
  ],
  operator: [
    { kind: 'SELECT', table: 'inventory' },
    { kind: 'INSERT', table: 'inventory' },
    { kind: 'UPDATE', table: 'inventory' },
    { kind: 'DELETE', table: 'inventory' },
    { kind: 'SELECT', table: 'api_keys' },
    { kind: 'INSERT', table: 'api_keys' },
    { kind: 'UPDATE', table: 'api_keys', column: 'revoked_at' },
    { kind: 'SELECT', table: 'pgmigrations' },
    { kind: 'SELECT', table: 'inventory_history' },
  ],
}
