/**
 * True for the `version()` of PostgreSQL itself, such as `PostgreSQL 18.4 (Debian 18.4-1) on x86_64…`, and false for
 * that of a server that only speaks its language or spreads a table over several.
 */
export function isPlainPostgres(version: string): boolean {
  return (
    /^PostgreSQL \d+(\.\d+|devel|beta\d+|rc\d+)( \([^)]*\))? on /.test(version) &&
    !/citus|greenplum|redshift|yugabyte/i.test(version)
  )
}
