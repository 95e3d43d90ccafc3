import t from 'tap'
import { isPlainPostgres } from '../../../src/database/server/plain-postgres.ts'

t.test('knows PostgreSQL from what only speaks its language', async (t) => {
  const plain = [
    'PostgreSQL 18.4 on x86_64-pc-linux-gnu, compiled by gcc (Debian 12.2.0-14) 12.2.0, 64-bit',
    'PostgreSQL 14.13 (Debian 14.13-1.pgdg120+1) on aarch64-unknown-linux-gnu, compiled by gcc, 64-bit',
    'PostgreSQL 19beta1 on x86_64-pc-linux-musl, compiled by gcc (Alpine 14.2.0) 14.2.0, 64-bit',
    'PostgreSQL 19devel on x86_64-apple-darwin, compiled by clang',
  ]
  const others = [
    'CockroachDB CCL v24.1.0 (x86_64-pc-linux-gnu, built 2024/05/15 21:28:29, go1.22.2)',
    'PostgreSQL 11.2-YB-2.25.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang',
    'PostgreSQL 15.12-YB-2.29.0.0-b0 on x86_64-pc-linux-gnu',
    'PostgreSQL 12.12 (Greenplum Database 7.1.0 build commit:x) on x86_64-unknown-linux-gnu',
    'PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2, Redshift 1.0.1',
    'EnterpriseDB 10.5',
    '',
  ]
  for (const version of plain) t.ok(isPlainPostgres(version), version)
  for (const version of others) t.notOk(isPlainPostgres(version), version)
})
