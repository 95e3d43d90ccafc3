import pg from 'pg'
import t from 'tap'
import { nameOfAddress } from '../../src/database/address.ts'
import { sessionConfig } from '../../src/database/session.ts'

/** What pg connects with. */
const connectionOf = (config: pg.ClientConfig): object => {
  const { host, port, user, database, password } = new pg.Client(config)
  return { host, port, user, database, password }
}

t.test('an address is passed on as it is, and shown by its host, port and database', (t) => {
  for (const [url, name] of [
    ['postgres://h/db', 'h:5432/db'],
    ['postgresql://u:p%40@h:5433/db?sslmode=verify-full', 'h:5433/db'],
    ['postgres://u@[::1]:5433/db', '::1:5433/db'],
    ['postgres://u@%2Frun%2Fpostgresql/db', '/run/postgresql:5432/db'],
    ['postgres:///db', 'localhost:5432/db'],
    ['postgres://u:p@/db', 'localhost:5432/db'],
    ['postgres://u:p@/db?host=/cloudsql/project:region:name', '/cloudsql/project:region:name:5432/db'],
    ['postgres://u@/db?host=::1&port=5433', '::1:5433/db'],
    ['postgres://u@ignored:5433/db?host=h', 'h:5433/db'],
    ['postgres://u:p%2B+%20@h/?options=-c%20a%3D1%2B1+-c%20b=2&user=a%26b', 'h:5432'],
  ] as const) {
    t.strictSame(connectionOf(sessionConfig(url, '')), connectionOf({ connectionString: url }), url)
    t.equal(nameOfAddress(url), name, url)
  }
  t.strictSame(
    sessionConfig('postgres://h/db?connection=x&lock_timeout=1', ''),
    sessionConfig('postgres://h/db', ''),
  )
  t.end()
})
