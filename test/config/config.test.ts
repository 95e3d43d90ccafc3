import { readFile } from 'node:fs/promises'
import t from 'tap'
import { loadConfig, loadOperatorDatabase } from '../../src/config/config.ts'
import { describeSettings, misspelledSettings } from '../../src/config/describe.ts'

t.test('every setting but a secret has a default', async (t) => {
  t.strictSame(loadConfig({}), {
    host: '127.0.0.1',
    port: 3000,
    metricsPort: undefined,
    databaseUrl: undefined,
    behindPooler: false,
    databasePoolSize: 10,
    apiKeys: [],
    logLevel: 'info',
    traces: false,
    publicUrls: [],
    trustProxy: [],
  })
  t.ok(Object.isFrozen(loadConfig({})))
})

t.test('every variable is read', async (t) => {
  t.strictSame(
    loadConfig({
      HOST: '0.0.0.0',
      PORT: '8080',
      METRICS_PORT: '9464',
      DATABASE_URL: 'postgresql://user:p%40ss@db.example:5433/stock?sslmode=verify-full',
      DATABASE_POOLER: 'transaction',
      DATABASE_POOL_SIZE: '25',
      API_KEYS: 'billing:first-key, second-key ,',
      LOG_LEVEL: 'debug',
      OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318',
      PUBLIC_URLS: 'https://api.example.com/v1,https://staging.example.com/v1',
      TRUST_PROXY: '10.0.0.0/8, ::1',
      NODE_ENV: 'production',
      UNRELATED: 'x',
    }),
    {
      host: '0.0.0.0',
      port: 8080,
      metricsPort: 9464,
      databaseUrl: 'postgresql://user:p%40ss@db.example:5433/stock?sslmode=verify-full',
      behindPooler: true,
      databasePoolSize: 25,
      apiKeys: [
        { name: 'billing', key: 'first-key' },
        { name: 'key-2', key: 'second-key' },
      ],
      logLevel: 'debug',
      traces: true,
      publicUrls: ['https://api.example.com/v1', 'https://staging.example.com/v1'],
      trustProxy: ['10.0.0.0/8', '::1'],
    },
  )
})

t.test('an empty variable counts as unset', async (t) => {
  t.strictSame(loadConfig({ PORT: '', DATABASE_URL: ' ', API_KEYS: '', LOG_LEVEL: '' }), loadConfig({}))
})

const folder = t.testdir({
  url: 'postgres://user:secret@host/db\n',
  keys: 'ops:a-key,\nshop:another-key\n',
  empty: ' \n',
})

const levels = 'fatal, error, warn, info, debug, trace, silent'
const modes = 'disable, no-verify, prefer, require, verify-ca, verify-full'
const unreadable = 'must be a file that can be read: '
const missing = `${unreadable}ENOENT: no such file or directory, open `
/** The database of a row is this one, followed by the parameters of its address. */
const host = 'postgres://u:secret@host/db'
const address = (parameters: string): Record<string, string> => ({ DATABASE_URL: `${host}?${parameters}` })

/** Values that a setting must not have. */
const wrong = {
  HOST: ['a b'],
  PORT: ['-1', '65536', '3000.5', '1e3', '0x10'],
  METRICS_PORT: ['-1', '65536', 'prometheus', '3000'],
  DATABASE_URL: ['mysql://x/y', 'localhost', 'postgres://user:secret#ss@host/db'],
  DATABASE_POOLER: ['session', 'true', 'pgbouncer'],
  DATABASE_POOL_SIZE: ['3', '1001', 'many'],
  API_KEYS: ['with secret', 'a:secret:c', 'k"secret', 'good,bad secret', ':secret', 'name:'],
  LOG_LEVEL: ['INFO'],
  NODE_ENV: ['Production', 'live'],
  OTEL_SDK_DISABLED: ['1', 'off'],
  OTEL_TRACES_EXPORTER: ['console', 'zipkin'],
  OTEL_EXPORTER_OTLP_ENDPOINT: ['collector:4318', 'grpc://collector:4317'],
  OTEL_EXPORTER_OTLP_PROTOCOL: ['grpc', 'http/json'],
  PUBLIC_URLS: ['api.example.com/v1', 'https://api.example.com', 'https://api.example.com/v1/'].concat(
    'https://user:secret@api.example.com/v1',
    'https://user@api.example.com/v1',
  ),
  TRUST_PROXY: ['proxy', '10.0.0.0/33', '10.0.0/8', '::1/129', '1', 'true'],
}

type Row = readonly [errors: readonly (string | RegExp)[], ...settings: Record<string, string>[]]

/** Settings by the errors that they cause, all of them and nothing else. */
const refused: Row[] = [
  ...Object.entries(wrong).map(
    ([name, values]): Row => [
      [new RegExp(`^${name} must be `)],
      ...values.map((value) => ({ [name]: value })),
    ],
  ),
  [['PORT must be an integer from 0 to 65535, not "http"'], { PORT: 'http' }],
  [['DATABASE_POOL_SIZE must be an integer from 4 to 1000, not 0'], { DATABASE_POOL_SIZE: '0' }],
  [[/^API_KEYS must be a comma-separated list of keys/], { API_KEYS: 'the secret key' }],
  [[`LOG_LEVEL must be one of ${levels}, not "loud"`], { LOG_LEVEL: 'loud' }],
  [['NODE_ENV must be production, development or test, not "prod"'], { NODE_ENV: 'prod' }],

  // Together.
  [
    ['DATABASE_URL must be set when NODE_ENV is production'],
    ...['', ' '].map((DATABASE_URL) => ({ NODE_ENV: 'production', DATABASE_URL })),
  ],
  [
    [
      /^PORT /,
      /^DATABASE_POOL_SIZE /,
      /^API_KEYS /,
      /^LOG_LEVEL /,
      /^DATABASE_URL must be set when NODE_ENV is /,
    ],
    { NODE_ENV: 'production', PORT: 'x', DATABASE_POOL_SIZE: '0', API_KEYS: 'a secret', LOG_LEVEL: 'loud' },
  ],
  [
    [
      /^LOG_LEVEL must be /,
      'METRICS_PORT must be another port than PORT, not 4000',
      /^DATABASE_URL must be /,
    ],
    { PORT: '4000', METRICS_PORT: '4000', LOG_LEVEL: 'loud', DATABASE_URL: 'localhost' },
  ],
  // A wrong value contradicts nothing.
  [[/^PORT must be /], { PORT: 'x', METRICS_PORT: '4000' }],
  [
    [/^PORT must be /, /^OPERATOR_DATABASE_URL must be an address like /],
    { PORT: 'x', OPERATOR_DATABASE_URL: 'secret' },
  ],

  [['API_KEYS and API_KEYS_FILE must not both be set'], { API_KEYS: 'a', API_KEYS_FILE: `${folder}/keys` }],

  // Files.
  [[`DATABASE_URL_FILE ${missing}'${folder}/none'`], { DATABASE_URL_FILE: `${folder}/none` }],
  [
    [/^DATABASE_URL_FILE must be a file that can be read: EISDIR[^\n]*$/],
    { NODE_ENV: 'production', DATABASE_URL_FILE: folder },
  ],
  [[/^DATABASE_URL_FILE must be a file with a value in it/], { DATABASE_URL_FILE: `${folder}/empty` }],
  [[`sslrootcert in DATABASE_URL ${missing}'/nope'`], address('sslmode=verify-full&sslrootcert=/nope')],
  // A secret in the place of its file is not repeated.
  [[`API_KEYS_FILE ${missing}'***'`], { API_KEYS_FILE: 'ops:secret' }],
  [[`DATABASE_URL_FILE ${missing}'***'`], { DATABASE_URL_FILE: host }],
  [[`sslkey in DATABASE_URL ${missing}'***'`], address('sslkey=-----BEGIN%0Aops:secret')],
  ...['sslrootcert', 'sslcert', 'sslkey'].map(
    (parameter): Row => [
      [new RegExp(`^${parameter} in DATABASE_URL ${unreadable}[^\n]*$`)],
      address(`${parameter}=${folder}`),
      address(`${parameter}=system`),
    ],
  ),

  // What an address promises, and the service does not provide.
  [
    [`sslmode in DATABASE_URL must be one of ${modes}`],
    ...['verify_full', 'Require', 'allow', ''].map((mode) => address(`sslmode=${mode}`)),
  ],
  [['ssl in DATABASE_URL must be one of true, 1, 0, no-verify'], address('ssl=false')],
  [['sslnegotiation in DATABASE_URL must be one of postgres, direct'], address('sslnegotiation=none')],
  [
    ['sslnegotiation=direct in DATABASE_URL needs TLS, for example sslmode=verify-full'],
    address('sslnegotiation=direct&sslmode=disable'),
    address('sslnegotiation=direct&ssl=0'),
  ],
  [
    ['sslmode=verify-ca in DATABASE_URL needs sslrootcert with uselibpqcompat=true'],
    address('uselibpqcompat=true&sslmode=verify-ca'),
  ],
  [['sslmode in DATABASE_URL must be set only once'], address('sslmode=verify-full&sslmode=disable')],
  ...['ssl_mode=require', 'SSLMODE=require', 'ssl-mode=REQUIRED', 'requiressl=1', 'tls=true'].map(
    (misspelled): Row => [
      [
        `${nameOf(misspelled)} in DATABASE_URL must be removed: it has no effect; for TLS, set sslmode=verify-full`,
      ],
      address(misspelled),
    ],
  ),
  ...[
    'channel_binding=require',
    'channel_binding=require&sslmode=no-verify',
    'channel_binding=require&sslmode=require&uselibpqcompat=true',
    'gssencmode=require',
    'require_auth=scram-sha-256',
    'requirepeer=postgres',
    'ssl_min_protocol_version=TLSv1.3&sslmode=verify-full',
    'sslcrl=/etc/crl.pem&sslmode=verify-full',
    'sslcrldir=/etc/crl&sslmode=verify-full',
  ].map(
    (demand): Row => [
      [`${nameOf(demand)} in DATABASE_URL must be removed: the service does not support it`],
      address(demand),
    ],
  ),
  ...['statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'query_timeout'].map(
    (limit): Row => [
      [`${limit} in DATABASE_URL must be a number of milliseconds, without a unit`],
      ...['5s', '5%20s', 'abc', '', '-1', '1.5', '2147483648'].map((value) => address(`${limit}=${value}`)),
    ],
  ),
]

function nameOf(parameter: string): string {
  return parameter.split('=', 1)[0] ?? ''
}

t.test('every error of the settings is reported at once, without secrets', async (t) => {
  for (const [errors, ...rows] of refused) {
    for (const settings of rows) {
      const title = JSON.stringify(settings)
      const described = describeSettings(settings)
      t.match(described.errors, errors, title)
      t.equal(described.errors.length, errors.length, title)
      t.notMatch(JSON.stringify(described), 'secret', title)
      const own = described.errors.filter((error) => !error.startsWith('OPERATOR_'))
      t.throws(() => loadConfig(settings), { name: 'ConfigurationError', message: own.join('\n') }, title)
    }
  }
})

/** Settings by the warnings that they cause, which have no errors. */
const accepted: Row[] = [
  [[], { TRUST_PROXY: '10.0.0.1/32,::1/128' }, { PORT: '0', METRICS_PORT: '0' }],
  [[], ...['production', 'development', 'test'].map((NODE_ENV) => ({ NODE_ENV, DATABASE_URL: host }))],
  [[], ...modes.split(', ').map((mode) => address(`sslmode=${mode}`))],
  // pg verifies the certificate.
  [
    ['channel_binding in DATABASE_URL has no effect'],
    ...['prefer', 'require', 'verify-ca', 'verify-full'].map((mode) =>
      address(`channel_binding=require&sslmode=${mode}`),
    ),
  ],
  [[], ...['0', '5000', '2147483647'].map((limit) => address(`statement_timeout=${limit}`))],
  [['connect_timeout in DATABASE_URL has no effect'], address('connect_timeout=5s')],
  [
    ['channel_binding', 'connect_timeout', 'schema'].map((name) => `${name} in DATABASE_URL has no effect`),
    address('sslmode=require&channel_binding=require&connect_timeout=5&schema=public&schema=x'),
  ],
  [[/./, /./, /./], address('ssl_min_protocol_version=TLSv1.2&channel_binding=prefer&sslsni=1')],
  [
    [],
    address(
      'sslmode=no-verify&sslnegotiation=direct&application_name=a&options=-c%20work_mem=8MB&statement_timeout=1000' +
        '&target_session_attrs=any&uselibpqcompat=true',
    ),
  ],
  [['schema in OPERATOR_DATABASE_URL has no effect'], { OPERATOR_DATABASE_URL: `${host}?schema=public` }],
  [[], ...['', ' ', '1'].map((WEB_CONCURRENCY) => ({ WEB_CONCURRENCY }))],
  [
    [/^WEB_CONCURRENCY has no effect.*docs\/operating\.md#scale-out/],
    ...['2', 'auto', 'x'].map((WEB_CONCURRENCY) => ({ WEB_CONCURRENCY })),
  ],
]

t.test('a setting without effect causes a warning', async (t) => {
  for (const [warnings, ...rows] of accepted) {
    for (const settings of rows) {
      const title = JSON.stringify(settings)
      const described = describeSettings(settings)
      t.strictSame(described.errors, [], title)
      t.match(described.warnings, warnings, title)
      t.equal(described.warnings.length, warnings.length, title)
    }
  }
  t.strictSame(describeSettings({ DATABASE_URL: 'localhost?schema=x' }).warnings, [], 'beside an error')
})

t.test('a password that is not encoded is in no message', async (t) => {
  for (const url of [
    'u:1?secret@host/db',
    'u:1?secret=secret@host/db',
    'u:1?sslsecret@host/db',
    'u:password?sslsecret',
    'host/db?user=u&password=1&secret',
    'host/db?user=u&password=1&sslsecret',
  ]) {
    const { errors, warnings } = describeSettings({ DATABASE_URL: `postgres://${url}` })
    t.ok(errors.length + warnings.length > 0)
    t.notMatch(JSON.stringify([errors, warnings]), 'secret', url)
  }
})

t.test('traces only where the variables of OpenTelemetry ask for it', async (t) => {
  const endpoint = 'http://collector:4318'
  const traces = (env: Record<string, string>): boolean => loadConfig(env).traces
  t.equal(traces({ OTEL_TRACES_EXPORTER: 'otlp' }), true)
  t.equal(traces({ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: endpoint }), true)
  t.equal(traces({ OTEL_SERVICE_NAME: 'stock' }), false)
  t.equal(traces({ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_TRACES_EXPORTER: 'none' }), false)
  t.equal(traces({ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_SDK_DISABLED: 'TRUE' }), false)
  t.equal(traces({ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_SDK_DISABLED: 'false' }), true)
})

t.test('secrets are read from files', async (t) => {
  const config = loadConfig({
    NODE_ENV: 'production',
    DATABASE_URL_FILE: `${folder}/url`,
    API_KEYS_FILE: `${folder}/keys`,
  })
  t.equal(config.databaseUrl, 'postgres://user:secret@host/db')
  t.strictSame(config.apiKeys, [
    { name: 'ops', key: 'a-key' },
    { name: 'shop', key: 'another-key' },
  ])
})

t.test('.env.example lists every variable, and no other', async (t) => {
  const example = await readFile('.env.example', 'utf8')
  const listed = Array.from(example.matchAll(/^#? ?([A-Z_]+)=/gm), ([, name]) => name)
  const settings = describeSettings({}).settings.map(({ name }) => name)
  const files = ['API_KEYS_FILE', 'DATABASE_URL_FILE', 'OPERATOR_DATABASE_URL_FILE']
  const ofCompose = [
    'BACKUP_INTERVAL_HOURS',
    'BACKUP_KEEP_DAYS',
    'COMPOSE_FILE',
    'PUBLISH',
    'RATE_LIMIT',
    'REPLICAS',
  ]
  t.strictSame(listed.sort(), [...settings, ...files, ...ofCompose].sort())
})

t.test(
  'the command line has a database of its own where one is set, and else that of the server',
  async (t) => {
    const folder = t.testdir({ url: 'postgres://operator:secret@host/db\n' })
    const server = { DATABASE_URL: 'postgres://server@host/db' }
    t.equal(loadOperatorDatabase({}), undefined)
    t.strictSame(loadOperatorDatabase(server), { url: server.DATABASE_URL, variable: 'DATABASE_URL' })
    const operator = { ...server, OPERATOR_DATABASE_URL_FILE: `${folder}/url` }
    t.strictSame(loadOperatorDatabase(operator), {
      url: 'postgres://operator:secret@host/db',
      variable: 'OPERATOR_DATABASE_URL_FILE',
    })
    const forServer = {
      PORT: '127.0.0.1:3000',
      METRICS_PORT: 'x',
      API_KEYS_FILE: '/none',
    }
    t.equal(
      loadOperatorDatabase({ ...server, ...forServer })?.url,
      server.DATABASE_URL,
      'it does not use them',
    )
    t.throws(() => loadOperatorDatabase({ ...server, NODE_ENV: 'prod' }), { message: /^NODE_ENV must be/ })
    t.throws(() => loadOperatorDatabase({ NODE_ENV: 'production' }), { message: /^DATABASE_URL must be set/ })
    t.notMatch(JSON.stringify(loadConfig(operator)), 'secret', 'the server does not know it')
    t.doesNotThrow(() => loadConfig({ ...server, OPERATOR_DATABASE_URL_FILE: `${folder}/none` }))
    t.throws(() => loadOperatorDatabase({ OPERATOR_DATABASE_URL: 'secret' }), {
      name: 'ConfigurationError',
      message: /^OPERATOR_DATABASE_URL must be an address like (?!.*secret)/,
    })
    t.throws(() => loadOperatorDatabase({ ...server, DATABASE_POOLER: 'transaction' }), {
      message: /^OPERATOR_DATABASE_URL must be set if DATABASE_POOLER is/,
    })
    t.match(loadOperatorDatabase({ ...operator, DATABASE_POOLER: 'transaction' }), {
      variable: 'OPERATOR_DATABASE_URL_FILE',
    })
  },
)

t.test('variables that look like a misspelled setting cause a warning', async (t) => {
  for (const [name, meant] of [
    ['API_KEY', 'API_KEYS'],
    ['DATABASE_POOLSIZE', 'DATABASE_POOL_SIZE'],
    ['LOGLEVEL', 'LOG_LEVEL'],
    ['DATABSE_URL', 'DATABASE_URL'],
    ['DATABASE_URI', 'DATABASE_URL'],
    ['database_url', 'DATABASE_URL'],
    ['DATABASE_URL_FIEL', 'DATABASE_URL_FILE'],
    ['OPERATOR_DATABASEURL', 'OPERATOR_DATABASE_URL'],
    ['METRIC_PORT', 'METRICS_PORT'],
    ['PUBLIC_URL', 'PUBLIC_URLS'],
  ] as const) {
    t.strictSame(misspelledSettings({ [name]: 'x' }), [
      `${name} is not a setting and has no effect; did you mean ${meant}?`,
    ])
  }
  const others = ['PATH', 'HOME', 'HOSTNAME', 'NODE_OPTIONS', 'PGHOST', 'DB_PORT', 'SHELL', 'LANG', 'PUBLISH']
  const right = ['PORT', 'API_KEYS', 'API_KEYS_FILE', 'OTEL_SERVICE_NAME', 'REPLICAS', 'NODE_ENV']
  t.strictSame(misspelledSettings(Object.fromEntries([...others, ...right].map((name) => [name, 'x']))), [])
  t.strictSame(misspelledSettings({ API_KEY: '' }), [], 'an empty variable is not set')
})

t.test('settings are described without a secret', async (t) => {
  const shown = (env: Record<string, string>): Record<string, string | undefined> =>
    Object.fromEntries(describeSettings(env).settings.map(({ name, value }) => [name, value]))
  t.match(
    shown({
      DATABASE_URL: 'postgres://user:secret@host:5432/db?sslmode=require',
      API_KEYS: 'ops:secret,secret',
    }),
    {
      DATABASE_URL: 'postgres://user:***@host:5432/db?sslmode=require',
      API_KEYS: '2 keys: ops, key-2',
      PORT: '3000',
      METRICS_PORT: undefined,
      DATABASE_POOL_SIZE: '10',
    },
  )
  for (const url of [
    'postgres://u:secret@h1:1,h2:2/db?target_session_attrs=any',
    'postgres://u:se?secret@host/db',
    'postgres://u:se#secret@host/db',
    'postgres://u:se@secret@host/db',
    'postgres://u:se/secret@host/db',
    'postgres://u:secret/db',
    'postgres://u:1secret/db',
    'postgres://host/db?password=secret&sslpassword=secret&user=u',
    'u:secret@host',
    'secret',
  ]) {
    t.notMatch(JSON.stringify(shown({ DATABASE_URL: url, OTEL_EXPORTER_OTLP_ENDPOINT: url })), 'secret', url)
  }
  const parameters = 'sslkey=secret&sslcert=/cert.pem'
  t.match(shown({ DATABASE_URL: `postgres://host/db?${parameters}` }), {
    DATABASE_URL: 'postgres://host/db?sslkey=***&sslcert=/cert.pem',
  })
  t.match(
    shown({ PUBLIC_URLS: 'https://api.example.com:8443/v1, https://user:secret@staging.example.com/v1' }),
    {
      PUBLIC_URLS: 'https://api.example.com:8443/v1,https://user:***@staging.example.com/v1',
    },
  )
})
