import { parseIntoClientConfig } from 'pg-connection-string'
import t from 'tap'
import { loadConfig } from '../../src/config/config.ts'
import { ConfigurationError } from '../../src/config/errors.ts'
import { AddressError, parseAddress } from '../../src/database/address.ts'
import { openDatabase } from '../../src/database/pool.ts'
import { requestLimits } from '../../src/database/pool-options.ts'
import { testDatabase } from '../support/database.ts'
import { onServer } from '../support/on-server.ts'

/** Returns what pg reads from an address. */
const configOf = (url: string): object => ({ ...parseIntoClientConfig(url) })

t.test('an address is passed on as it is', (t) => {
  for (const url of [
    'postgres://h/db',
    'postgresql://u:p%40@h:5433/db?sslmode=verify-full',
    'postgres://u@[::1]:5433/db',
    'postgres://u@%2Frun%2Fpostgresql/db',
    'postgres:///db?host=/run/postgresql',
    'postgres:///db',
    'postgres://u:p%2B+%20@h/db?options=-c%20a%3D1%2B1+-c%20b=2&application_name=a%26b',
  ]) {
    t.strictSame(configOf(parseAddress(url).url), configOf(url))
  }
  t.end()
})

t.test('a host in the parameters may come with a login, and may have colons in its name', (t) => {
  for (const [url, passedOn, name] of [
    [
      'postgres://u:p@/db?host=/cloudsql/project:region:name',
      'postgres://u:p@localhost/db?host=/cloudsql/project:region:name',
      '/cloudsql/project:region:name:5432/db',
    ],
    ['postgres://u@/db?host=::1&port=5433', 'postgres://u@localhost/db?host=::1&port=5433', '::1:5433/db'],
    ['postgres://u@ignored:5433/db?host=h', 'postgres://u@ignored:5433/db?host=h', 'h:5433/db'],
    ['postgres://u:p@/db', 'postgres://u:p@localhost/db', 'localhost:5432/db'],
  ] as const) {
    t.strictSame(configOf(parseAddress(url).url), configOf(passedOn))
    t.equal(parseAddress(url).name, name)
  }
  t.end()
})

t.test('a percent-encoded database name may have any character that a path may', async (t) => {
  const { url } = await testDatabase(t, { empty: true })
  const name = `a/b:c@d&e=f+g$h,i;j %2F%é ${process.pid}`
  await onServer(url, `CREATE DATABASE "${name}"`)
  const address = `${url.slice(0, url.lastIndexOf('/'))}/${encodeURIComponent(name)}`
  const database = openDatabase({
    url: address,
    size: 1,
    limits: requestLimits,
    onConnectionLost: () => {},
  })
  t.teardown(async () => {
    await database.close()
    await onServer(url, `DROP DATABASE "${name}" WITH (FORCE)`)
  })
  t.strictSame(await database.query('SELECT current_database() AS name'), [{ name }])
})

t.test('a wrong address is refused with a message that says why, without any part of it', (t) => {
  for (const [url, message] of [
    ['nowhere', /be an address like postgres:/],
    ['postgres://u:secret#@h/db', /be an address like postgres:/],
    ['postgres://u:secret@h/db?port=abc', /have a port from 1 to 65535/],
    ['postgres://u:secret@h/db?port=65536', /have a port from 1 to 65535/],
    ['postgres://u:secret@h1,h2/db', /name one host: the address of a proxy/],
    ['postgres://u:secret@h1:1,h2:2/db?target_session_attrs=read-write', /name one host/],
    ['postgres://u:secret@/db?host=h1,h2', /name one host/],
    ['postgres://u:secret@h/db?port=1,2', /name one host/],
    ['postgres://u:secret@h/db?target_session_attrs=standby', /lead to the server that takes writes/],
  ] as const) {
    t.throws(() => parseAddress(url), { name: AddressError.name, message })
    t.throws(() => loadConfig({ DATABASE_URL: url }), {
      name: ConfigurationError.name,
      message: new RegExp(`^DATABASE_URL must (?!.*secret).*${message.source}`),
    })
  }
  for (const target of ['read-write', 'any'])
    t.doesNotThrow(() => loadConfig({ DATABASE_URL: `postgres://h/db?target_session_attrs=${target}` }))
  t.end()
})
