import pg from 'pg'
import t from 'tap'
import { parseAddress } from '../../src/database/address.ts'

/** What pg connects with. */
const readConnection = (config: pg.ClientConfig): object => {
  const { host, port, user, database, password } = new pg.Client(config)
  return { host, port, user, database, password }
}

t.test('an address is read as pg reads it, and shown by its host, port and database', (t) => {
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
    const address = parseAddress(url)
    t.strictSame(readConnection(address.config), readConnection({ connectionString: url }), url)
    t.equal(address.name, name, url)
  }
  t.end()
})

t.test('every password and name that is encoded arrives, and nothing of it is shown', (t) => {
  const texts = [...'#@/?% :\\"\'[ö犬\u202e\n', '%41', '%zz', 'a b%4a', '&x=1', '😀']
  for (const text of texts) {
    const encoded = encodeURIComponent(text)
    const { config, name } = parseAddress(`postgres://u${encoded}:${encoded}@h/d${encoded}`)
    t.match(config, { user: `u${text}`, password: text, database: `d${text}` }, text)
    t.equal(name, `h:5432/d${text}`)
    t.match(parseAddress(`postgres://h/?password=${encoded}`).config, { password: text })
  }
  for (const raw of ['a b', 'ö犬😀', '"|^<>', 'a@b'])
    t.match(parseAddress(`postgres://u:${raw}@h/db`).config, { password: raw, host: 'h' }, raw)
  t.end()
})
