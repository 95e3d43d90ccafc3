import { parseIntoClientConfig } from 'pg-connection-string'
import t from 'tap'
import { loadConfig } from '../../src/config/load-config.ts'
import { ConfigurationError } from '../../src/config/start-up-error.ts'
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
    t.strictSame(configOf(parseAddress(url).url), configOf(url))
    t.equal(parseAddress(url).name, name)
  }
  t.strictSame(configOf(parseAddress('postgres://h/db?connection=x').url), configOf('postgres://h/db'))
  t.end()
})

t.test('a wrong address is refused with a message that says why, without any part of it', (t) => {
  for (const [url, message] of [
    ['nowhere', /be an address like postgres:/],
    ['postgres://u:secret#@h/db', /be an address like postgres:/],
    ['postgres://u:secret@h/db?port=abc', /and with a port up to 65535/],
    ['postgres://u:secret@h:65536/db', /and with a port up to 65535/],
    ['postgres://u:secret@h1,h2/db', /name one host: the address of a proxy/],
    ['postgres://u:secret@/db?host=h1,h2', /name one host/],
    ['postgres://u:secret@h/db?port=1,2', /name one host/],
    ['postgres://u:secret@h/db?target_session_attrs=standby', /lead to the server that takes writes/],
  ] as const) {
    t.throws(() => loadConfig({ DATABASE_URL: url }), {
      name: ConfigurationError.name,
      message: new RegExp(`^DATABASE_URL must (?!.*secret).*${message.source}`),
    })
  }
  for (const target of ['read-write', 'any'])
    t.doesNotThrow(() => loadConfig({ DATABASE_URL: `postgres://h/db?target_session_attrs=${target}` }))
  t.end()
})
