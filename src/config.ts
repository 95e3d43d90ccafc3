import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import { availableParallelism } from 'node:os'
import { FormatRegistry, KindGuard, type Static, type TObject, type TSchema, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import type { FixedKey } from './api-keys/fixed-keys.ts'
import { AddressError, parseAddress, type SessionTarget } from './database/address.ts'

FormatRegistry.Set('base-url', (text) => /^https?:\/\/\S+\/v1$/.test(text) && URL.canParse(text))
FormatRegistry.Set('web-url', (text) => /^https?:\/\//.test(text) && URL.canParse(text))
FormatRegistry.Set('network', (text) => {
  const [address = '', bits, ...rest] = text.split('/')
  const widest = { 0: -1, 4: 32, 6: 128 }[isIP(address)] ?? -1
  return (
    rest.length === 0 &&
    widest > 0 &&
    (bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= widest))
  )
})

/** One for lists and three for updates: with fewer, one row that someone holds would keep others waiting. */
const CONNECTIONS_PER_WORKER = 4

const otlpEndpoint = Type.String({ format: 'web-url', writeOnly: true, description: 'an http(s) address' })
const otlpProtocol = Type.String({ pattern: '^http/protobuf$', description: 'http/protobuf' })

/**
 * The environment. A description says what a value must be, and completes the sentence "NAME must be …".
 * `writeOnly` marks what no message may repeat. An empty variable counts as unset; lists are comma-separated.
 */
const Environment = Type.Object({
  NODE_ENV: Type.Optional(Type.String({ description: 'a name such as production' })),
  HOST: Type.String({ default: '127.0.0.1', pattern: '^\\S+$', description: 'a host name or an IP address' }),
  PORT: Type.Integer({
    default: 3000,
    minimum: 0,
    maximum: 65535,
    description: 'an integer from 0 to 65535',
  }),
  METRICS_PORT: Type.Optional(
    Type.Integer({ minimum: 0, maximum: 65535, description: 'an integer from 0 to 65535' }),
  ),
  DATABASE_URL: Type.Optional(Type.String({ writeOnly: true, description: 'an address of PostgreSQL' })),
  DATABASE_POOLER: Type.String({
    default: 'none',
    pattern: '^(none|transaction)$',
    description:
      'none, or transaction where a pooler in that mode, such as PgBouncer, stands before the database',
  }),
  DATABASE_POOL_SIZE: Type.Optional(
    Type.Integer({
      minimum: CONNECTIONS_PER_WORKER,
      maximum: 1000,
      description: `an integer from ${CONNECTIONS_PER_WORKER} to 1000`,
    }),
  ),
  WEB_CONCURRENCY: Type.String({
    default: '1',
    pattern: '^(auto|[1-9][0-9]?)$',
    description: 'a number of processes from 1 to 99, or auto for one for each processor',
  }),
  API_KEYS: Type.Array(Type.String({ pattern: '^([A-Za-z0-9_-]{1,64}:)?[A-Za-z0-9._~+/-]+=*$' }), {
    default: [],
    writeOnly: true,
    description:
      'a comma-separated list of keys or name:key pairs; a key has letters, digits and any of - . _ ~ + / (RFC 6750)',
  }),
  LOG_LEVEL: Type.String({
    default: 'info',
    pattern: '^(fatal|error|warn|info|debug|trace|silent)$',
    description: 'one of fatal, error, warn, info, debug, trace, silent',
  }),
  OTEL_SDK_DISABLED: Type.Optional(
    Type.String({ pattern: '^([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])$', description: 'true or false' }),
  ),
  OTEL_TRACES_EXPORTER: Type.Optional(Type.String({ pattern: '^(otlp|none)$', description: 'otlp or none' })),
  OTEL_EXPORTER_OTLP_ENDPOINT: Type.Optional(otlpEndpoint),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: Type.Optional(otlpEndpoint),
  OTEL_EXPORTER_OTLP_PROTOCOL: Type.Optional(otlpProtocol),
  OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: Type.Optional(otlpProtocol),
  PUBLIC_URLS: Type.Array(Type.String({ format: 'base-url' }), {
    default: [],
    description: 'a comma-separated list of http(s) addresses that end in /v1, production first',
  }),
  TRUST_PROXY: Type.Array(Type.String({ format: 'network' }), {
    default: [],
    description: 'a comma-separated list of IP addresses or networks such as 10.0.0.0/8',
  }),
})

/** What the operators' command line has beside it, and the server never reads. */
const OperatorEnvironment = Type.Object({ OPERATOR_DATABASE_URL: Environment.properties.DATABASE_URL })

type Variables = Readonly<Record<string, string | undefined>>

/** What the service is told from outside: checked, complete and frozen. */
export interface Config {
  readonly host: string
  readonly port: number
  /** Where metrics are served; absent where they are not. */
  readonly metricsPort: number | undefined
  /** Absent where nobody set up a database; never so in production. */
  readonly databaseUrl: string | undefined
  /** Whether a pooler in transaction mode stands before the database. */
  readonly behindPooler: boolean
  /** The most connections that all workers together open to serve requests. */
  readonly databasePoolSize: number
  /** How many processes serve requests. */
  readonly workers: number
  readonly apiKeys: readonly FixedKey[]
  readonly logLevel: string
  /** Whether requests are traced; how, the OpenTelemetry SDK reads from its variables itself. */
  readonly traces: boolean
  readonly publicUrls: readonly string[]
  readonly trustProxy: readonly string[]
}

/** The environment does not hold together. The message lists every fault, a line each, without any secret. */
export class ConfigurationError extends Error {
  override readonly name = 'ConfigurationError'

  constructor(faults: readonly string[]) {
    super(faults.join('\n'))
  }
}

/**
 * Reads the configuration out of environment variables.
 *
 * @throws {ConfigurationError} naming every variable that is missing or wrong, and what it must be
 */
export function loadConfig(env: Variables): Config {
  const faults: string[] = []
  const given = readVariables(Environment, withSecretFiles(env, ['DATABASE_URL', 'API_KEYS'], faults))
  const values: unknown = Value.Default(Environment, given)
  faults.push(...schemaFaults(Environment, values))
  faults.push(...addressFaults('DATABASE_URL', given, isForWriting))
  if (given['NODE_ENV'] === 'production' && given['DATABASE_URL'] === undefined) {
    faults.push('DATABASE_URL must be set when NODE_ENV is production')
  }
  if (faults.length > 0 || !Value.Check(Environment, values)) throw new ConfigurationError(faults)
  if (values.METRICS_PORT === values.PORT && values.PORT !== 0) {
    throw new ConfigurationError([`METRICS_PORT must be another port than PORT, not ${values.PORT}`])
  }
  const { workers, poolSize } = concurrencyOf(values)
  if (workers * CONNECTIONS_PER_WORKER > poolSize) {
    throw new ConfigurationError([
      `DATABASE_POOL_SIZE must be at least ${workers * CONNECTIONS_PER_WORKER} for ${workers} workers, not ${poolSize}`,
    ])
  }
  return Object.freeze({
    host: values.HOST,
    port: values.PORT,
    metricsPort: values.METRICS_PORT,
    databaseUrl: values.DATABASE_URL,
    behindPooler: values.DATABASE_POOLER === 'transaction',
    databasePoolSize: poolSize,
    workers,
    apiKeys: values.API_KEYS.map(namedKey),
    logLevel: values.LOG_LEVEL,
    traces: wantsTraces(values),
    publicUrls: values.PUBLIC_URLS,
    trustProxy: values.TRUST_PROXY,
  })
}

/**
 * The database that the operators' command line works on: the one at OPERATOR_DATABASE_URL, else the server's own.
 * Undefined where neither is set.
 *
 * @throws {ConfigurationError} as `loadConfig`
 */
export function loadOperatorDatabase(env: Variables): string | undefined {
  const faults: string[] = []
  const values = readVariables(OperatorEnvironment, withSecretFiles(env, ['OPERATOR_DATABASE_URL'], faults))
  faults.push(...schemaFaults(OperatorEnvironment, values))
  faults.push(...addressFaults('OPERATOR_DATABASE_URL', values))
  if (faults.length > 0 || !Value.Check(OperatorEnvironment, values)) throw new ConfigurationError(faults)
  if (values.OPERATOR_DATABASE_URL !== undefined) return values.OPERATOR_DATABASE_URL
  const { databaseUrl, behindPooler } = loadConfig(env)
  if (!behindPooler) return databaseUrl
  throw new ConfigurationError([
    'OPERATOR_DATABASE_URL must be set where DATABASE_POOLER is: the command line needs a connection that no pooler shares',
  ])
}

/** The variables that hold a secret may come from a file instead, as Docker and Kubernetes mount secrets. */
function withSecretFiles(env: Variables, secretNames: readonly string[], faults: string[]): Variables {
  const complete: Record<string, string | undefined> = { ...env }
  for (const name of secretNames) {
    const file = env[`${name}_FILE`]
    if (!file) continue
    if (env[name]) faults.push(`${name} and ${name}_FILE must not both be set`)
    try {
      complete[name] = readFileSync(file, 'utf8').trim()
      if (complete[name] === '')
        faults.push(`${name}_FILE must be a file with a value in it, not ${JSON.stringify(file)}`)
    } catch {
      faults.push(`${name}_FILE must be a file that can be read, not ${JSON.stringify(file)}`)
    }
  }
  return complete
}

/** The variables of the schema that are set, as the types that the schema asks for where their text is of that type. */
function readVariables(schemas: TObject, env: Variables): Record<string, unknown> {
  const values: Record<string, unknown> = {}
  for (const [name, schema] of Object.entries(schemas.properties)) {
    const text = env[name]?.trim()
    if (text) values[name] = readVariable(schema, text)
  }
  return values
}

function readVariable(schema: TSchema, text: string): unknown {
  if (KindGuard.IsArray(schema)) {
    return text
      .split(',')
      .map((entry) => entry.trim())
      .filter((entry) => entry !== '')
  }
  return KindGuard.IsInteger(schema) && /^\d{1,15}$/.test(text) ? Number(text) : text
}

/** One sentence for each variable that is wrong, however many faults it has. */
function schemaFaults(schemas: TObject, values: unknown): Set<string> {
  const sentences = new Set<string>()
  for (const { path, value } of Value.Errors(schemas, values)) {
    const name = path.split('/')[1] ?? ''
    const schema = schemas.properties[name]
    const instead = schema?.['writeOnly'] ? '' : `, not ${JSON.stringify(value)}`
    sentences.add(`${name} must be ${schema?.description}${instead}`)
  }
  return sentences
}

/** What is wrong with the address of a database, in one sentence at most. */
function addressFaults(
  name: string,
  { [name]: url }: Readonly<Record<string, unknown>>,
  accepts: (target: SessionTarget) => boolean = () => true,
): string[] {
  if (typeof url !== 'string') return []
  try {
    const { target = 'any' } = parseAddress(url)
    if (accepts(target)) return []
    return [
      `${name} must not have target_session_attrs=${target}: the service needs a server that takes writes`,
    ]
  } catch (error) {
    if (!(error instanceof AddressError)) throw error
    return [`${name} must ${error.message}`]
  }
}

function isForWriting(target: SessionTarget): boolean {
  return target === 'any' || target === 'read-write' || target === 'primary'
}

/** How many processes serve requests, and how many connections all of them open to do so. */
function concurrencyOf({ WEB_CONCURRENCY, DATABASE_POOL_SIZE }: Static<typeof Environment>): {
  workers: number
  poolSize: number
} {
  const enoughFor = Math.floor((DATABASE_POOL_SIZE ?? 1000) / CONNECTIONS_PER_WORKER)
  const workers =
    WEB_CONCURRENCY === 'auto' ? Math.min(availableParallelism(), enoughFor) : Number(WEB_CONCURRENCY)
  const needed = workers * CONNECTIONS_PER_WORKER
  return { workers, poolSize: DATABASE_POOL_SIZE ?? Math.max(10, needed) }
}

/** Off unless somebody says where to send traces, or that they are to be sent to the collector on this machine. */
function wantsTraces(values: Static<typeof Environment>): boolean {
  if (values.OTEL_SDK_DISABLED?.toLowerCase() === 'true') return false
  if (values.OTEL_TRACES_EXPORTER !== undefined) return values.OTEL_TRACES_EXPORTER === 'otlp'
  return (values.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT ?? values.OTEL_EXPORTER_OTLP_ENDPOINT) !== undefined
}

/** `name:key`, or a key alone, which is then named by its place in the list. */
function namedKey(entry: string, index: number): FixedKey {
  const [name, key] = entry.split(':')
  return name !== undefined && key !== undefined ? { name, key } : { name: `key-${index + 1}`, key: entry }
}
