import { accessSync, constants, readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import { availableParallelism } from 'node:os'
import { FormatRegistry, KindGuard, type Static, type TObject, type TSchema, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { parseIntoClientConfig } from 'pg-connection-string'
import type { FixedKey } from '../api-keys/fixed-keys.ts'
import { AddressError, parseAddress, type SessionTarget } from '../database/address.ts'

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
  NODE_ENV: Type.Optional(
    Type.String({
      pattern: '^(production|development|test)$',
      description: 'production, development or test',
    }),
  ),
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

/** What the operators' command line reads of it, with an address that the server never reads. */
const OperatorEnvironment = Type.Object({
  NODE_ENV: Environment.properties.NODE_ENV,
  DATABASE_URL: Environment.properties.DATABASE_URL,
  OPERATOR_DATABASE_URL: Environment.properties.DATABASE_URL,
  DATABASE_POOLER: Environment.properties.DATABASE_POOLER,
})

/** The variables whose value may come from a file. */
const SECRETS = ['DATABASE_URL', 'OPERATOR_DATABASE_URL', 'API_KEYS'] as const

/** What the operators' command line works on. */
export interface OperatorDatabase {
  readonly url: string
  /** The variable that names it, for messages. */
  readonly variable: string
}

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
  faults.push(
    ...addressFaults('DATABASE_URL', given, isForWriting),
    ...certificateFaults('DATABASE_URL', given),
  )
  if (isDatabaseMissing(env, given)) faults.push(MISSING_DATABASE)
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
 * Undefined where neither is set. Variables that only the server reads are not looked at.
 *
 * @throws {ConfigurationError} as `loadConfig`
 */
export function loadOperatorDatabase(env: Variables): OperatorDatabase | undefined {
  const faults: string[] = []
  const own = isSet(env, 'OPERATOR_DATABASE_URL')
  const variable = own ? 'OPERATOR_DATABASE_URL' : 'DATABASE_URL'
  const { [own ? 'DATABASE_URL' : 'OPERATOR_DATABASE_URL']: _unused, ...used } = withSecretFiles(
    env,
    [variable],
    faults,
  )
  const given = readVariables(OperatorEnvironment, used)
  const values: unknown = Value.Default(OperatorEnvironment, given)
  faults.push(...schemaFaults(OperatorEnvironment, values))
  faults.push(...addressFaults(variable, given), ...certificateFaults(variable, given))
  if (!own && isDatabaseMissing(env, given)) faults.push(MISSING_DATABASE)
  if (!own && given['DATABASE_POOLER'] === 'transaction') {
    faults.push(
      'OPERATOR_DATABASE_URL must be set where DATABASE_POOLER is: the command line needs a connection that no pooler shares',
    )
  }
  if (faults.length > 0 || !Value.Check(OperatorEnvironment, values)) throw new ConfigurationError(faults)
  const { OPERATOR_DATABASE_URL, DATABASE_URL } = values
  const url = OPERATOR_DATABASE_URL ?? DATABASE_URL
  return url === undefined
    ? undefined
    : { url, variable: env[`${variable}_FILE`] ? `${variable}_FILE` : variable }
}

/**
 * The role in DATABASE_URL, where OPERATOR_DATABASE_URL has another address for the operators' command line. Otherwise,
 * and where DATABASE_URL is no address or names no role, undefined.
 */
export function serverRoleOf(env: Variables): string | undefined {
  if (!isSet(env, 'OPERATOR_DATABASE_URL')) return undefined
  const { DATABASE_URL: url } = withSecretFiles(env, ['DATABASE_URL'], [])
  if (!url) return undefined
  try {
    return parseIntoClientConfig(parseAddress(url).hosts[0].url).user
  } catch {
    return undefined
  }
}

const MISSING_DATABASE = 'DATABASE_URL must be set when NODE_ENV is production'

function isDatabaseMissing(env: Variables, given: Readonly<Record<string, unknown>>): boolean {
  return given['NODE_ENV'] === 'production' && !isSet(env, 'DATABASE_URL')
}

/** True where a variable is set, itself or by the name of a file, whether or not that can be read. */
function isSet(env: Variables, name: string): boolean {
  return Boolean(env[name]?.trim() || env[`${name}_FILE`])
}

/** Names the files of an address that cannot be read, before a connection fails for their lack. */
function certificateFaults(name: string, { [name]: url }: Readonly<Record<string, unknown>>): string[] {
  if (typeof url !== 'string' || !url.includes('?')) return []
  const parameters = new URLSearchParams(url.slice(url.indexOf('?') + 1))
  return ['sslrootcert', 'sslcert', 'sslkey'].flatMap((parameter) => {
    const file = parameters.get(parameter)
    if (!file || file === 'system') return []
    try {
      accessSync(file, constants.R_OK)
      return []
    } catch (error) {
      return [`${parameter} in ${name} must be a file that can be read: ${messageOf(error)}`]
    }
  })
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** A setting as it takes effect, without any secret. */
export interface Setting {
  readonly name: string
  /** Undefined where it has none. */
  readonly value: string | undefined
  readonly isDefault: boolean
}

/** All settings, what is wrong with them, and variables that look like a misspelt one. */
export interface Settings {
  readonly settings: readonly Setting[]
  readonly faults: readonly string[]
  readonly warnings: readonly string[]
}

/** Describes the settings of the server and of the command line as they take effect, without any secret. */
export function describeSettings(env: Variables): Settings {
  const known = { ...Environment.properties, ...OperatorEnvironment.properties }
  const values = readVariables(Type.Object(known), withSecretFiles(env, SECRETS, []))
  const settings = Object.entries<TSchema>(known).map(([name, schema]) => {
    const value = values[name]
    const shown = value ?? schema['default']
    const file = env[`${name}_FILE`]
    return {
      name: value !== undefined && isSecret(name) && file ? `${name}_FILE` : name,
      value: isEmptySetting(shown) ? undefined : withoutSecret(name, schema, shown),
      isDefault: value === undefined,
    }
  })
  const faults = new Set([...faultsOf(() => loadConfig(env)), ...faultsOf(() => loadOperatorDatabase(env))])
  return { settings, faults: [...faults], warnings: misspeltSettings(env) }
}

function isSecret(name: string): boolean {
  return SECRETS.some((secret) => secret === name)
}

function isEmptySetting(value: unknown): boolean {
  return value === undefined || (Array.isArray(value) && value.length === 0)
}

function withoutSecret(name: string, schema: TSchema, value: unknown): string {
  if (name === 'API_KEYS' && Array.isArray(value)) {
    const names = value.map(String).map((entry, index) => namedKey(entry, index).name)
    return `${names.length} ${names.length === 1 ? 'key' : 'keys'}: ${names.join(', ')}`
  }
  if (!schema['writeOnly']) return Array.isArray(value) ? value.join(',') : String(value)
  return withoutPassword(String(value))
}

/** Parameters of an address that are no secret. */
const shownParameters =
  /^(sslmode|sslrootcert|sslcert|sslkey|application_name|target_session_attrs|connect_timeout)$/

/** An address without its password; nothing of one that cannot be told apart from its password. */
function withoutPassword(url: string): string {
  const [, scheme, role, hosts, query] =
    /^([a-z]+:\/\/)(?:([^:@/?#]*)(?::[^?]*)?@)?([^@?]*)(?:\?([^@]*))?$/.exec(url) ?? []
  if (scheme === undefined || hosts === undefined || /:(?!\d{1,5}([,/]|$))[^\]]*$/.test(hosts)) return '***'
  const parameters = [...new URLSearchParams(query)].map(([name, text]) =>
    shownParameters.test(name) ? `${name}=${text}` : `${name}=***`,
  )
  const who = role === undefined ? '' : `${role}:***@`
  return `${scheme}${who}${hosts}${parameters.length > 0 ? `?${parameters.join('&')}` : ''}`
}

function faultsOf(load: () => unknown): string[] {
  try {
    load()
    return []
  } catch (error) {
    if (error instanceof ConfigurationError) return error.message.split('\n')
    throw error
  }
}

/** Warns of variables that look like a setting with another spelling: they have no effect. */
export function misspeltSettings(env: Variables): string[] {
  const names = Object.keys({ ...Environment.properties, ...OperatorEnvironment.properties })
  const known = [...names, ...SECRETS.map((name) => `${name}_FILE`), 'PUBLISH', 'REPLICAS']
  return Object.keys(env).flatMap((name) => {
    if (known.includes(name) || name.startsWith('OTEL_') || !env[name]) return []
    const meant = known.find((setting) => isLike(name, setting))
    return meant === undefined ? [] : [`${name} is no setting and has no effect; did you mean ${meant}?`]
  })
}

/** True where two names are the same but for case, underscores and a letter or two. */
function isLike(name: string, setting: string): boolean {
  const [one, other] = [name, setting].map((text) => text.toUpperCase().replaceAll('_', ''))
  if (one === undefined || other === undefined) return false
  return distance(one, other) <= (other.length >= 8 ? 2 : other.length > 4 ? 1 : 0)
}

/** How many letters have to be inserted, removed or replaced to make one text out of another (Levenshtein). */
function distance(one: string, other: string): number {
  let above = Array.from({ length: other.length + 1 }, (_, index) => index)
  for (const [row, letter] of [...one].entries()) {
    const line = [row + 1]
    for (const [column, otherLetter] of [...other].entries()) {
      const replaced = (above[column] ?? 0) + (letter === otherLetter ? 0 : 1)
      line.push(Math.min(replaced, (above[column + 1] ?? 0) + 1, (line[column] ?? 0) + 1))
    }
    above = line
  }
  return above.at(-1) ?? 0
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
    } catch (error) {
      faults.push(`${name}_FILE must be a file that can be read: ${messageOf(error)}`)
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
