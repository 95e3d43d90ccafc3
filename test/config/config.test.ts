import { readFile } from 'node:fs/promises'
import t from 'tap'
import { loadConfig, loadOperatorDatabase } from '../../src/config/config.ts'
import { describeSettings, misspelledSettings } from '../../src/config/describe.ts'
import { ConfigurationError } from '../../src/config/errors.ts'

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

t.test('in production it starts no database of its own for an address that is empty', async (t) => {
  for (const DATABASE_URL of ['', ' ']) {
    t.throws(() => loadConfig({ NODE_ENV: 'production', DATABASE_URL }), {
      message: 'DATABASE_URL must be set when NODE_ENV is production',
    })
  }
})

t.test('every invalid value is refused', async (t) => {
  const wrong = {
    HOST: ['a b'],
    PORT: ['-1', '65536', '3000.5', '1e3', '0x10', 'http'],
    METRICS_PORT: ['-1', '65536', 'prometheus', '3000'],
    DATABASE_URL: ['mysql://x/y', 'localhost', 'postgres://user:pa#ss@host/db'],
    DATABASE_POOLER: ['session', 'true', 'pgbouncer'],
    DATABASE_POOL_SIZE: ['0', '3', '1001', 'many'],
    API_KEYS: ['with space', 'a:b:c', 'k"y', 'good,bad key', ':key', 'name:'],
    LOG_LEVEL: ['loud', 'INFO'],
    OTEL_SDK_DISABLED: ['1', 'off'],
    OTEL_TRACES_EXPORTER: ['console', 'zipkin'],
    OTEL_EXPORTER_OTLP_ENDPOINT: ['collector:4318', 'grpc://collector:4317'],
    OTEL_EXPORTER_OTLP_PROTOCOL: ['grpc', 'http/json'],
    PUBLIC_URLS: [
      'api.example.com/v1',
      'https://api.example.com',
      'https://api.example.com/v1/',
      'https://user:password@api.example.com/v1',
      'https://user@api.example.com/v1',
    ],
    TRUST_PROXY: ['proxy', '10.0.0.0/33', '10.0.0/8', '::1/129', '1', 'true'],
  }
  const TRUST_PROXY = '10.0.0.1/32,::1/128'
  t.strictSame(loadConfig({ TRUST_PROXY }).trustProxy, TRUST_PROXY.split(','), 'the longest that are right')
  for (const [name, values] of Object.entries(wrong)) {
    for (const value of values) {
      t.throws(() => loadConfig({ [name]: value }), {
        name: 'ConfigurationError',
        message: new RegExp(`^${name} must be `),
      })
    }
  }
})

t.test('all invalid settings are reported at once, without secrets', async (t) => {
  const load = (): unknown =>
    loadConfig({
      NODE_ENV: 'production',
      PORT: 'http',
      DATABASE_POOL_SIZE: '0',
      API_KEYS: 'the secret key',
      LOG_LEVEL: 'loud',
    })
  t.throws(load, ConfigurationError)
  try {
    load()
  } catch (error) {
    const { message } = error instanceof Error ? error : { message: '' }
    const lines = message.split('\n')
    t.match(lines, [
      'PORT must be an integer from 0 to 65535, not "http"',
      'DATABASE_POOL_SIZE must be an integer from 4 to 1000, not 0',
      /^API_KEYS must be a comma-separated list of keys/,
      'LOG_LEVEL must be one of fatal, error, warn, info, debug, trace, silent, not "loud"',
      'DATABASE_URL must be set when NODE_ENV is production',
    ])
    t.equal(lines.length, 5)
    t.notMatch(message, 'the secret key')
  }
  t.throws(() => loadConfig({ DATABASE_URL: 'postgres://user:pa#ss@host/db' }), { message: /^(?!.*pa#ss)/ })
})

t.test('contradicting settings are reported beside all other errors', async (t) => {
  const ports = { PORT: '4000', METRICS_PORT: '4000' }
  const { errors } = describeSettings({ ...ports, LOG_LEVEL: 'loud', DATABASE_URL: 'localhost' })
  t.match(errors, [
    /^LOG_LEVEL must be /,
    'METRICS_PORT must be another port than PORT, not 4000',
    /^DATABASE_URL must be /,
  ])
  t.equal(errors.length, 3)
  t.strictSame(
    describeSettings({ ...ports, PORT: 'x' }).errors.map((error) => error.split(' ', 1)[0]),
    ['PORT'],
    'a wrong value contradicts nothing',
  )
  t.match(loadConfig({ PORT: '0', METRICS_PORT: '0' }), { port: 0, metricsPort: 0 }, 'two free ports')
})

t.test('WEB_CONCURRENCY has no effect but a warning that says what to do instead', async (t) => {
  for (const WEB_CONCURRENCY of ['2', 'auto', 'x']) {
    const { errors, warnings } = describeSettings({ WEB_CONCURRENCY })
    t.match([errors, warnings], [[], [/^WEB_CONCURRENCY has no effect.*docs\/operating\.md#scale-out/]])
    t.equal(warnings.length, 1)
  }
  for (const WEB_CONCURRENCY of ['', ' ', '1'])
    t.strictSame(describeSettings({ WEB_CONCURRENCY }).warnings, [])
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
  const folder = t.testdir({
    url: 'postgres://user:secret@host/db\n',
    keys: 'ops:a-key,\nshop:another-key\n',
  })
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
  t.throws(() => loadConfig({ DATABASE_URL_FILE: `${folder}/none` }), {
    message:
      /^DATABASE_URL_FILE must be a file that can be read: ENOENT: no such file or directory, open '.*\/none'$/,
  })
  t.throws(
    () => loadConfig({ NODE_ENV: 'production', DATABASE_URL_FILE: folder }),
    { message: /^DATABASE_URL_FILE must be a file that can be read: EISDIR[^\n]*$/ },
    'and does not call it missing',
  )
  t.throws(() => loadConfig({ DATABASE_URL: 'postgres://host/db?sslmode=verify-full&sslrootcert=/nope' }), {
    message:
      /^sslrootcert in DATABASE_URL must be a file that can be read: ENOENT: no such file or directory, open '\/nope'$/,
  })
  const inPlace = 'ops:secret'
  for (const [name, variables] of [
    ['API_KEYS_FILE', { API_KEYS_FILE: inPlace }],
    ['DATABASE_URL_FILE', { DATABASE_URL_FILE: `postgres://${inPlace}@host/db` }],
    ['sslkey in DATABASE_URL', { DATABASE_URL: `postgres://host/db?sslkey=-----BEGIN%0A${inPlace}` }],
  ] as const) {
    t.throws(
      () => loadConfig(variables),
      { message: `${name} must be a file that can be read: ENOENT: no such file or directory, open '***'` },
      'a secret in the place of its file is not repeated',
    )
  }
  for (const parameter of ['sslrootcert', 'sslcert', 'sslkey']) {
    for (const name of [folder, 'system']) {
      t.throws(() => loadConfig({ DATABASE_URL: `postgres://host/db?${parameter}=${name}` }), {
        message: new RegExp(`^${parameter} in DATABASE_URL must be a file that can be read: [^\n]*$`),
      })
    }
  }
  const empty = t.testdir({ url: ' \n' })
  t.throws(() => loadConfig({ DATABASE_URL_FILE: `${empty}/url` }), {
    message: /^DATABASE_URL_FILE must be a file with a value in it/,
  })
  t.throws(() => loadConfig({ API_KEYS: 'a', API_KEYS_FILE: `${folder}/keys` }), {
    message: 'API_KEYS and API_KEYS_FILE must not both be set',
  })
})

t.test('.env.example lists every variable, and no other', async (t) => {
  const example = await readFile('.env.example', 'utf8')
  const listed = Array.from(example.matchAll(/^#? ?([A-Z_]+)=/gm), ([, name]) => name)
  t.strictSame(listed.sort(), [
    'API_KEYS',
    'API_KEYS_FILE',
    'BACKUP_INTERVAL_HOURS',
    'BACKUP_KEEP_DAYS',
    'COMPOSE_FILE',
    'DATABASE_POOLER',
    'DATABASE_POOL_SIZE',
    'DATABASE_URL',
    'DATABASE_URL_FILE',
    'HOST',
    'LOG_LEVEL',
    'METRICS_PORT',
    'NODE_ENV',
    'OPERATOR_DATABASE_URL',
    'OPERATOR_DATABASE_URL_FILE',
    'OTEL_EXPORTER_OTLP_ENDPOINT',
    'OTEL_EXPORTER_OTLP_PROTOCOL',
    'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT',
    'OTEL_EXPORTER_OTLP_TRACES_PROTOCOL',
    'OTEL_SDK_DISABLED',
    'OTEL_TRACES_EXPORTER',
    'PORT',
    'PUBLIC_URLS',
    'PUBLISH',
    'RATE_LIMIT',
    'REPLICAS',
    'TRUST_PROXY',
  ])
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

t.test('NODE_ENV has known values only', async (t) => {
  for (const NODE_ENV of ['production', 'development', 'test']) {
    t.doesNotThrow(() => loadConfig({ NODE_ENV, DATABASE_URL: 'postgres://host/db' }))
  }
  for (const NODE_ENV of ['prod', 'Production', 'live']) {
    t.throws(() => loadConfig({ NODE_ENV }), {
      message: `NODE_ENV must be production, development or test, not "${NODE_ENV}"`,
    })
  }
})

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

t.test('an address must not promise security that the service does not provide', async (t) => {
  const errorsOf = (query: string): readonly string[] => {
    const DATABASE_URL = `postgres://u:secret@host/db?${query}`
    const { errors } = describeSettings({ DATABASE_URL })
    if (errors.length > 0) t.throws(() => loadConfig({ DATABASE_URL }), { message: errors.join('\n') })
    return errors
  }
  const modes = 'disable, no-verify, prefer, require, verify-ca, verify-full'
  for (const value of ['verify_full', 'Require', 'allow', '']) {
    t.strictSame(errorsOf(`sslmode=${value}`), [`sslmode in DATABASE_URL must be one of ${modes}`], value)
  }
  t.strictSame(errorsOf('ssl=false'), ['ssl in DATABASE_URL must be one of true, 1, 0, no-verify'])
  t.strictSame(errorsOf('sslnegotiation=none'), [
    'sslnegotiation in DATABASE_URL must be one of postgres, direct',
  ])
  for (const plain of ['sslmode=disable', 'ssl=0']) {
    t.strictSame(errorsOf(`sslnegotiation=direct&${plain}`), [
      'sslnegotiation=direct in DATABASE_URL needs TLS, for example sslmode=verify-full',
    ])
  }
  t.strictSame(errorsOf('uselibpqcompat=true&sslmode=verify-ca'), [
    'sslmode=verify-ca in DATABASE_URL needs sslrootcert with uselibpqcompat=true',
  ])
  t.strictSame(errorsOf('sslmode=verify-full&sslmode=disable'), [
    'sslmode in DATABASE_URL must be set only once',
  ])
  for (const misspelled of [
    'ssl_mode=require',
    'SSLMODE=require',
    'ssl-mode=REQUIRED',
    'requiressl=1',
    'tls=true',
  ]) {
    const [name] = misspelled.split('=')
    t.strictSame(errorsOf(misspelled), [
      `${name} in DATABASE_URL must be removed: it has no effect; for TLS, set sslmode=verify-full`,
    ])
  }
  for (const demand of [
    'channel_binding=require',
    'channel_binding=require&sslmode=no-verify',
    'channel_binding=require&sslmode=require&uselibpqcompat=true',
    'gssencmode=require',
    'require_auth=scram-sha-256',
    'requirepeer=postgres',
    'ssl_min_protocol_version=TLSv1.3&sslmode=verify-full',
    'sslcrl=/etc/crl.pem&sslmode=verify-full',
    'sslcrldir=/etc/crl&sslmode=verify-full',
  ]) {
    const [name] = demand.split('=')
    t.strictSame(errorsOf(demand), [
      `${name} in DATABASE_URL must be removed: the service does not support it`,
    ])
  }
  for (const mode of modes.split(', ')) t.strictSame(errorsOf(`sslmode=${mode}`), [])
  for (const mode of ['prefer', 'require', 'verify-ca', 'verify-full'])
    t.strictSame(errorsOf(`channel_binding=require&sslmode=${mode}`), [], 'pg verifies the certificate')
  t.end()
})

t.test('a time limit in an address is a number of milliseconds', async (t) => {
  const errorsOf = (query: string): readonly string[] =>
    describeSettings({ DATABASE_URL: `postgres://u:secret@host/db?${query}` }).errors
  for (const name of [
    'statement_timeout',
    'lock_timeout',
    'idle_in_transaction_session_timeout',
    'query_timeout',
  ]) {
    for (const value of ['5s', '5%20s', 'abc', '', '-1', '1.5', '2147483648'])
      t.strictSame(
        errorsOf(`${name}=${value}`),
        [`${name} in DATABASE_URL must be a number of milliseconds, without a unit`],
        value,
      )
    for (const value of ['0', '5000', '2147483647']) t.strictSame(errorsOf(`${name}=${value}`), [], value)
  }
  t.strictSame(errorsOf('connect_timeout=5s'), [], 'it has no effect')
})

t.test('parameters of an address without effect cause a warning', async (t) => {
  const warningsOf = (query: string): readonly string[] => {
    const { errors, warnings } = describeSettings({
      OPERATOR_DATABASE_URL: `postgres://u:p@host/db?${query}`,
    })
    t.strictSame(errors, [])
    return warnings
  }
  t.strictSame(
    warningsOf('sslmode=require&channel_binding=require&connect_timeout=5&schema=public&schema=x'),
    ['channel_binding', 'connect_timeout', 'schema'].map(
      (name) => `${name} in OPERATOR_DATABASE_URL has no effect`,
    ),
  )
  t.strictSame(warningsOf('ssl_min_protocol_version=TLSv1.2&channel_binding=prefer&sslsni=1').length, 3)
  t.strictSame(
    warningsOf(
      'sslmode=no-verify&sslnegotiation=direct&application_name=a&options=-c%20work_mem=8MB&statement_timeout=1000' +
        '&target_session_attrs=any&load_balance_hosts=disable&uselibpqcompat=true',
    ),
    [],
  )
  t.strictSame(describeSettings({ DATABASE_URL: 'localhost?schema=x' }).warnings, [])
  for (const address of [
    'u:1?secret@host/db',
    'u:1?secret=secret@host/db',
    'u:1?sslsecret@host/db',
    'u:password?sslsecret',
    'host/db?user=u&password=1&secret',
    'host/db?user=u&password=1&sslsecret',
  ]) {
    const { errors, warnings } = describeSettings({ DATABASE_URL: `postgres://${address}` })
    t.ok(errors.length + warnings.length > 0)
    t.notMatch(JSON.stringify([errors, warnings]), 'secret', 'a password that is not encoded')
  }
  t.end()
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
  const { settings, errors: refused } = describeSettings({
    PUBLIC_URLS: 'https://api.example.com:8443/v1, https://user:secret@staging.example.com/v1',
  })
  t.match(
    settings.find(({ name }) => name === 'PUBLIC_URLS')?.value,
    'https://api.example.com:8443/v1,https://user:***@staging.example.com/v1',
  )
  t.equal(refused.length, 1)
  t.notMatch(JSON.stringify([settings, refused]), 'secret')
  const { errors, warnings } = describeSettings({
    PORT: 'x',
    API_KEY: 'secret',
    OPERATOR_DATABASE_URL: 'secret',
  })
  t.match(errors, ['PORT must be an integer from 0 to 65535, not "x"', /^OPERATOR_DATABASE_URL must be/])
  t.equal(warnings.length, 1)
  t.notMatch(JSON.stringify([errors, warnings]), 'secret')
})
