import { readFile } from 'node:fs/promises'
import t from 'tap'
import { loadConfig, loadOperatorDatabase } from '../../src/config/load-config.ts'
import { Environment } from '../../src/config/variables.ts'
import { OperatorError } from '../../src/database/operator-error.ts'

const folder = t.testdir({
  url: 'postgres://user:secret@host/db\n',
  keys: 'billing:first-key,\nsecond-key ,\n',
  empty: ' \n',
})
const names = Object.keys(Environment.properties)
const host = 'postgres://u:secret@host/db'
const withParameters = (parameters: string) => ({ DATABASE_URL: `${host}?${parameters}` })

t.test('every variable is read, and all but secrets have a default', async (t) => {
  const url = 'postgresql://user:p%40ss@db.example:5433/stock?sslmode=verify-full'
  const urls = ['https://api.example.com/v1', 'https://staging.example.com/v1']
  const keys = Object.entries({ billing: 'first-key', 'key-2': 'second-key' })
  /** Variables with a value, the setting of each, its default, and what it is with that value. */
  const rows = [
    ['HOST', '0.0.0.0', 'host', '127.0.0.1', '0.0.0.0'],
    ['PORT', '8080', 'port', 3000, 8080],
    ['METRICS_PORT', '9464', 'metricsPort', undefined, 9464],
    ['DATABASE_URL', url, 'databaseUrl', undefined, url],
    ['DATABASE_POOLER', 'transaction', 'behindPooler', false, true],
    ['DATABASE_POOL_SIZE', '25', 'databasePoolSize', 10, 25],
    ['API_KEYS_FILE', `${folder}/keys`, 'apiKeys', [], keys.map(([name, key]) => ({ name, key }))],
    ['LOG_LEVEL', 'debug', 'logLevel', 'info', 'debug'],
    ['PUBLIC_URLS', urls.join(), 'publicUrls', [], urls],
    ['TRUST_PROXY', '10.0.0.0/8, ::1', 'trustProxy', [], ['10.0.0.0/8', '::1']],
    ['OTEL_EXPORTER_OTLP_ENDPOINT', 'http://collector:4318', 'traces', false, true],
  ] as const
  const defaults = Object.fromEntries(rows.map(([, , setting, value]) => [setting, value]))
  t.strictSame(loadConfig({}), defaults)
  const env = Object.fromEntries(rows.map(([name, value]) => [name, value]))
  const read = Object.fromEntries(rows.map(([, , setting, , value]) => [setting, value]))
  t.strictSame(loadConfig({ ...env, NODE_ENV: 'production' }), read)
})

t.test('an empty variable counts as unset', async (t) => {
  const all = names.flatMap((name) => [name, `${name}_FILE`])
  const empty = Object.fromEntries(all.map((name, index) => [name, ['', ' ', '\t\n'][index % 3]]))
  t.strictSame(loadConfig(empty), loadConfig({}))
  t.equal(loadOperatorDatabase(empty), undefined)
})

/** Values that a setting must not have. */
const wrong = {
  PORT: ['-1', '65536', '3000.5', '1e3', '0x10'],
  METRICS_PORT: ['-1', '65536', 'prometheus'],
  DATABASE_URL: ['mysql://x/y', 'localhost', 'postgres://u:secret/db', 'postgres://u:password?sslsecret'],
  DATABASE_POOLER: ['session', 'true', 'pgbouncer'],
  DATABASE_POOL_SIZE: ['3', '1001', 'many'],
  API_KEYS: ['with secret', 'a:secret:c', 'k"secret', 'good,bad secret', ':secret', 'name:'],
  LOG_LEVEL: ['INFO'],
  NODE_ENV: ['Production', 'live'],
  PUBLIC_URLS: ['api.example.com/v1', 'https://api.example.com', 'https://user:secret@api.example.com/v1'],
  TRUST_PROXY: ['proxy', '10.0.0.0/33', '10.0.0/8', '::1/129', '0.0.0.0/0', '::/0', '1', 'true'],
}

/** Passwords that are not encoded, and would be shown as a host, a database or a parameter. */
const unencoded = [
  'u:7/Xsecret@host/db',
  'u:p@ss@w/secret@host/db',
  'u:7?secret@host/db',
  'u:7#secret@host/db',
  'u:secret%zz%41@host/db',
  'u:sec\nret@host/db',
].map((address) => `postgres://${address}`)

/** Settings of one variable, a value each. */
const toEach = (name: string, values: readonly string[]) => values.map((value) => ({ [name]: value }))

type Row = readonly [messages: readonly (string | RegExp)[], ...settings: Record<string, string>[]]

/** Settings by the errors that they cause, all of them and nothing else. */
const cases: Row[] = [
  ...Object.entries(wrong).map(
    ([name, values]): Row => [[new RegExp(`^${name} must be `)], ...toEach(name, values)],
  ),
  [['PORT must be an integer from 0 to 65535, not "http"'], { PORT: 'http' }],
  [['DATABASE_URL must be set when NODE_ENV is production'], { NODE_ENV: 'production', DATABASE_URL: ' ' }],
  [
    [/^OTEL_EXPORTER_OTLP_ENDPOINT /, /^PORT /, /^API_KEYS /, /^DATABASE_URL must be set /],
    { NODE_ENV: 'production', PORT: 'x', API_KEYS: 'a secret', OTEL_EXPORTER_OTLP_ENDPOINT: 'secret:4318' },
  ],
  [[/^PORT /, /^OPERATOR_DATABASE_URL must be an address/], { PORT: 'x', OPERATOR_DATABASE_URL: 'secret' }],

  [[/^API_KEYS must have each key once/], ...toEach('API_KEYS', ['a:secret,b:secret', 'x,secret,a:secret'])],
  [[], { API_KEYS: 'a:one,a:two,b:three' }],

  // Files. A secret in the place of its file is not repeated.
  [['API_KEYS and API_KEYS_FILE must not both be set'], { API_KEYS: 'a', API_KEYS_FILE: `${folder}/keys` }],
  [
    ['DATABASE_URL_FILE cannot be read: ENOENT: no such file or directory'],
    ...toEach('DATABASE_URL_FILE', [`${folder}/none`, host]),
  ],
  [[/^DATABASE_URL_FILE .*: EISDIR/], { NODE_ENV: 'production', DATABASE_URL_FILE: folder }],
  [['DATABASE_URL_FILE must name a file that is not empty'], { DATABASE_URL_FILE: `${folder}/empty` }],
  [
    [/^DATABASE_URL must be one that pg accepts, with files that can be read: ENOENT: no such file/],
    ...['sslrootcert=/nope', 'sslcert=/nope', 'sslkey=-BEGIN%0Asecret'].map(withParameters),
  ],

  // What pg would ignore, or read as something else.
  ...Object.entries({
    sslmode: ['Require', 'prefer', 'verify-ca', 'require;password=secret', 'no-verify&uselibpqcompat=true'],
    uselibpqcompat: ['1'],
    ssl: ['false'],
    sslnegotiation: ['Direct'],
    sslrootcert: ['', 'system'],
  }).map(
    ([name, values]): Row => [
      [new RegExp(`^DATABASE_URL must have .* ${name}\\b`)],
      ...values.map((value) => withParameters(`user=a&${name}=${value}`)),
    ],
  ),
  ...['ssl_mode', 'SSLMODE', 'sslcrl', 'schema', 'application_name', 'connection', '__proto__'].map(
    (name): Row => [
      [new RegExp(`^DATABASE_URL must have no parameters but host, .*, not ${name}$`)],
      withParameters(`user=a&${name}=require`),
    ],
  ),
  [[/^DATABASE_URL must have no parameters but [^;]* ssl$/], withParameters('password=1&secret')],
  [
    [/^DATABASE_URL must be (an address like|one that pg accepts, )/],
    withParameters('sslnegotiation=direct&sslmode=disable'),
    withParameters('uselibpqcompat=true&sslmode=verify-ca'),
    { DATABASE_URL: 'postgres://u:100%desecret@host/db' },
  ],
  [
    [/^DATABASE_URL must be an address like .* without "#" and without "@" after the first slash/],
    ...toEach('DATABASE_URL', unencoded),
  ],

  [
    [/^DATABASE_URL must .*and with a port up to 65535/],
    ...toEach('DATABASE_URL', [`${host}?port=abc`, 'postgres://u:secret@h:65536/db']),
  ],
  [
    [/^DATABASE_URL must name one host: the address of a proxy/],
    ...toEach('DATABASE_URL', ['postgres://u:secret@h1,h2/db', `${host}?host=h1,h2`, `${host}?port=1,2`]),
  ],
  [
    [],
    { TRUST_PROXY: '10.0.0.1/32,::1/128' },
    { LOGLEVEL: 'debug', PGSSLMODE: 'x' },
    ...['production', 'development', 'test'].map((NODE_ENV) => ({ NODE_ENV, DATABASE_URL: host })),
    ...['disable', 'no-verify', 'verify-full'].map((mode) => withParameters(`sslmode=${mode}`)),
    ...['disable', 'prefer', 'require'].map((mode) => withParameters(`sslmode=${mode}&uselibpqcompat=true`)),
    withParameters('sslmode=verify-ca&uselibpqcompat=true&sslrootcert=package.json'),
    withParameters('sslmode=no-verify&sslnegotiation=direct&user=a&options=-c%20work_mem=8MB'),
  ],
]

/** Returns the errors with which the settings are refused. */
function findErrors(load: typeof loadConfig | typeof loadOperatorDatabase, settings: Record<string, string>) {
  try {
    load(settings)
    return []
  } catch (error) {
    if (error instanceof OperatorError) return error.details
    throw error
  }
}

t.test('every error is reported at once, without secrets', async (t) => {
  for (const [messages, ...rows] of cases) {
    for (const settings of rows) {
      const title = JSON.stringify(settings)
      const loads = [loadConfig, loadOperatorDatabase]
      const errors = [...new Set(loads.flatMap((load) => findErrors(load, settings)))]
      t.match(errors, messages, title)
      t.equal(errors.length, messages.length, title)
      t.notMatch(errors.join(), 'secret', title)
    }
  }
})

t.test('.env.example lists every variable, and no other', async (t) => {
  const example = await readFile('.env.example', 'utf8')
  const listed = Array.from(example.matchAll(/^#? ?([A-Z_]+)=/gm), ([, name]) => name)
  const files = ['API_KEYS_FILE', 'DATABASE_URL_FILE', 'OPERATOR_DATABASE_URL_FILE']
  const others =
    'BACKUP_INTERVAL_HOURS BACKUP_KEEP_DAYS CERTIFICATE COMPOSE_FILE COMPOSE_PROFILES IMAGE MEMORY_LIMIT MIGRATE_OPTIONS OTEL_EXPORTER_OTLP_ENDPOINT OWNER_DATABASE_URL PROXIES PUBLISH PUBLISH_HTTPS RATE_LIMIT REPLICAS'
  t.strictSame(listed.sort(), [...names, ...files, ...others.split(' ')].sort())
})

t.test('the command line has its own database if one is set, otherwise that of the server', async (t) => {
  const server = { DATABASE_URL: 'postgres://server@host/db' }
  const operator = { ...server, OPERATOR_DATABASE_URL_FILE: ` ${folder}/url ` }
  const own = { url: 'postgres://user:secret@host/db', variable: 'OPERATOR_DATABASE_URL_FILE' }
  t.match(loadOperatorDatabase(server), { url: server.DATABASE_URL, variable: 'DATABASE_URL' })
  t.match(loadOperatorDatabase({ ...operator, DATABASE_POOLER: 'transaction' }), own)
  const forServer = { PORT: '127.0.0.1:3000', METRICS_PORT: 'x', API_KEYS_FILE: '/none' }
  t.match(loadOperatorDatabase({ ...server, ...forServer }), { url: server.DATABASE_URL })
  t.notMatch(JSON.stringify(loadConfig(operator)), 'secret', 'the server does not know it')
  t.doesNotThrow(() => loadConfig({ ...server, OPERATOR_DATABASE_URL_FILE: '/none' }))
  for (const [settings, name] of [
    [{ ...server, NODE_ENV: 'prod' }, 'NODE_ENV'],
    [{ NODE_ENV: 'production' }, 'DATABASE_URL'],
    [{ ...server, DATABASE_POOLER: 'transaction' }, 'OPERATOR_DATABASE_URL'],
  ] as const)
    t.match(findErrors(loadOperatorDatabase, settings), [new RegExp(`^${name} must be`)])
})
