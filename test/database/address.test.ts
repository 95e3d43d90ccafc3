import { parseIntoClientConfig } from 'pg-connection-string'
import t from 'tap'
import { loadConfig } from '../../src/config/config.ts'
import { ConfigurationError } from '../../src/config/errors.ts'
import { AddressError, parseAddress } from '../../src/database/address.ts'
import { openDatabase, requestLimits } from '../../src/database/pool.ts'
import { testDatabase } from '../support/database.ts'
import { onServer } from '../support/on-server.ts'

/** Returns what pg reads from an address, without the parameters that it ignores. */
function configOf(url: string): object {
  const { target_session_attrs: _, ...config }: Record<string, unknown> = { ...parseIntoClientConfig(url) }
  return config
}

/** Returns what pg is told about each host of an address. */
const hostsOf = (url: string): object[] => parseAddress(url).hosts.map((host) => configOf(host.url))

t.test('an address of one host is passed on as it is', (t) => {
  for (const url of [
    'postgres://h/db',
    'postgresql://u:p%40@h:5433/db?sslmode=verify-full',
    'postgres://u@[::1]:5433/db',
    'postgres://u@%2Frun%2Fpostgresql/db',
    'postgres:///db?host=/run/postgresql',
    'postgres:///db',
    'postgres://u:p%2B+%20@h/db?options=-c%20a%3D1%2B1+-c%20b=2&application_name=a%26b',
  ]) {
    t.strictSame(hostsOf(url), [configOf(url)])
  }
  t.end()
})

t.test('a host in the parameters may come with a login, and may have colons in its name', (t) => {
  for (const [url, passedOn, name] of [
    [
      'postgres://u:p@/db?host=/cloudsql/project:region:name',
      'postgres://u:p@localhost/db?host=/cloudsql/project:region:name',
      '/cloudsql/project:region:name:5432',
    ],
    ['postgres://u@/db?host=::1&port=5433', 'postgres://u@localhost/db?host=::1&port=5433', '::1:5433'],
    ['postgres://u@ignored:5433/db?host=h', 'postgres://u@ignored:5433/db?host=h', 'h:5433'],
    ['postgres://u:p@/db', 'postgres://u:p@localhost/db', 'localhost:5432'],
  ] as const) {
    t.strictSame(hostsOf(url), [configOf(passedOn)])
    t.equal(parseAddress(url).hosts[0].name, name)
  }
  t.end()
})

t.test('several hosts are read as libpq reads them, other parameters stay', (t) => {
  t.strictSame(
    hostsOf('postgres://u:p@h1,h2:5433,[::1]:5434/db?target_session_attrs=any&sslmode=no-verify'),
    [
      'postgres://u:p@h1/db?sslmode=no-verify',
      'postgres://u:p@h2:5433/db?sslmode=no-verify',
      'postgres://u:p@[::1]:5434/db?sslmode=no-verify',
    ].map(configOf),
  )
  t.strictSame(
    hostsOf('postgres://u@%2Frun%2Fa,h:5433/db'),
    ['postgres://u@%2Frun%2Fa/db', 'postgres://u@h:5433/db'].map(configOf),
  )
  t.strictSame(
    hostsOf('postgres://u@/db?host=/run/a,::1&port=1,2&sslmode=disable'),
    ['postgres://u@%2Frun%2Fa:1/db?sslmode=disable', 'postgres://u@[::1]:2/db?sslmode=disable'].map(configOf),
  )
  t.strictSame(
    hostsOf('postgres://h1,h2/db?port=6000'),
    ['postgres://h1:6000/db', 'postgres://h2:6000/db'].map(configOf),
  )
  t.strictSame(
    parseAddress('postgres://u:secret@h1,%2Frun%2Fa:1/db').hosts.map(({ name }) => name),
    ['h1:5432', '/run/a:1'],
  )
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
    ['postgres://u:secret@h1,h2:port/db', /be an address like .*several hosts are separated by commas/],
    ['postgres://u:secret@h1,,h2/db', /name a host before and after each comma/],
    ['postgres://u:secret@h1,h2/db?port=1,2,3', /name one port for all of its hosts, or one for each/],
    ['postgres://u:secret@h/db?port=abc', /have a port from 1 to 65535/],
    ['postgres://u:secret@h/db?port=65536', /have a port from 1 to 65535/],
    [
      'postgres://u:secret@h1,h2/db?target_session_attrs=standby',
      /have any or read-write as target_session_attrs/,
    ],
    ['postgres://u:secret@h1,h2/db?load_balance_hosts=random', /not set load_balance_hosts/],
  ] as const) {
    t.throws(() => parseAddress(url), { name: AddressError.name, message })
    t.throws(() => loadConfig({ DATABASE_URL: url }), {
      name: ConfigurationError.name,
      message: new RegExp(`^DATABASE_URL must (?!.*secret).*${message.source}`),
    })
  }
  t.doesNotThrow(() => loadConfig({ DATABASE_URL: 'postgres://h1,h2/db?target_session_attrs=read-write' }))
  t.end()
})
