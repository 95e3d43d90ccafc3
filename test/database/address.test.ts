import { parseIntoClientConfig } from 'pg-connection-string'
import t from 'tap'
import { parseAddress } from '../../src/database/address.ts'

/** Returns what pg reads from an address. */
const configOf = (url: string): object => ({ ...parseIntoClientConfig(url) })

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
    t.strictSame(configOf(parseAddress(url).url), configOf(url), url)
    t.equal(parseAddress(url).name, name, url)
  }
  t.strictSame(configOf(parseAddress('postgres://h/db?connection=x').url), configOf('postgres://h/db'))
  t.end()
})
