/**
 * Whether `version()` is that of PostgreSQL itself, such as `PostgreSQL 18.4 (Debian 18.4-1) on x86_64…`, and not of a server
 * that is only compatible with it or distributes tables over several servers.
 */
export function isPlainPostgres(version: string): boolean {
  return (
    /^PostgreSQL \d+(\.\d+|devel|beta\d+|rc\d+)( \([^)]*\))? on /.test(version) &&
    !/citus|greenplum|redshift|yugabyte/i.test(version)
  )
}
