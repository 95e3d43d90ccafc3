import { type Static, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { parseIntoClientConfig } from 'pg-connection-string'
import type { FixedKey } from '../api-keys/fixed-keys.ts'
import { parseAddress } from '../database/address.ts'
import { addressErrors } from './addresses.ts'
import { ConfigurationError } from './errors.ts'
import { isSet, withSecretFiles } from './secret-files.ts'
import { Environment, OperatorEnvironment, readVariables, schemaErrors, type Variables } from './variables.ts'

/** The validated settings, with defaults. */
export interface Config {
  readonly host: string
  readonly port: number
  /** Absent if metrics are not served. */
  readonly metricsPort: number | undefined
  /** Absent if the service starts a local database itself. Always present in production. */
  readonly databaseUrl: string | undefined
  /** Whether a connection pooler in transaction mode is in front of the database. */
  readonly behindPooler: boolean
  /** Maximum connections for requests. */
  readonly databasePoolSize: number
  readonly apiKeys: readonly FixedKey[]
  readonly logLevel: string
  /** Whether tracing is on. The OpenTelemetry SDK reads its other settings from the environment itself. */
  readonly traces: boolean
  readonly publicUrls: readonly string[]
  readonly trustProxy: readonly string[]
}

/** The database that the operators' command line uses. */
export interface OperatorDatabase {
  readonly url: string
  /** The name of the variable that it comes from, for messages. */
  readonly variable: string
}

/**
 * Reads the server's configuration from environment variables.
 *
 * @throws {ConfigurationError} if a variable is missing or invalid; the message says for each what it must be
 */
export function loadConfig(env: Variables): Config {
  const errors: string[] = []
  const given = readVariables(Environment, withSecretFiles(env, ['DATABASE_URL', 'API_KEYS'], errors))
  const values: unknown = Value.Default(Environment, given)
  errors.push(...schemaErrors(Environment, values), ...conflictErrors(values))
  errors.push(...addressErrors('DATABASE_URL', given))
  if (isDatabaseMissing(env, given)) errors.push(MISSING_DATABASE)
  if (errors.length > 0 || !Value.Check(Environment, values)) throw new ConfigurationError(errors)
  return Object.freeze({
    host: values.HOST,
    port: values.PORT,
    metricsPort: values.METRICS_PORT,
    databaseUrl: values.DATABASE_URL,
    behindPooler: values.DATABASE_POOLER === 'transaction',
    databasePoolSize: values.DATABASE_POOL_SIZE,
    apiKeys: values.API_KEYS.map(namedKey),
    logLevel: values.LOG_LEVEL,
    traces: wantsTraces(values),
    publicUrls: values.PUBLIC_URLS,
    trustProxy: values.TRUST_PROXY,
  })
}

/**
 * Reads the address of the database for the operators' command line: OPERATOR_DATABASE_URL or else DATABASE_URL, undefined if
 * neither is set. Ignores variables that only the server uses.
 *
 * @throws {ConfigurationError} if a variable is missing or invalid
 */
export function loadOperatorDatabase(env: Variables): OperatorDatabase | undefined {
  const errors: string[] = []
  const own = isSet(env, 'OPERATOR_DATABASE_URL')
  const variable = own ? 'OPERATOR_DATABASE_URL' : 'DATABASE_URL'
  const { [own ? 'DATABASE_URL' : 'OPERATOR_DATABASE_URL']: _unused, ...used } = withSecretFiles(
    env,
    [variable],
    errors,
  )
  const given = readVariables(OperatorEnvironment, used)
  const values: unknown = Value.Default(OperatorEnvironment, given)
  errors.push(...schemaErrors(OperatorEnvironment, values))
  errors.push(...addressErrors(variable, given))
  if (!own && isDatabaseMissing(env, given)) errors.push(MISSING_DATABASE)
  if (!own && given['DATABASE_POOLER'] === 'transaction') {
    errors.push(
      'OPERATOR_DATABASE_URL must be set if DATABASE_POOLER is: the command line needs a direct connection to the server',
    )
  }
  if (errors.length > 0 || !Value.Check(OperatorEnvironment, values)) throw new ConfigurationError(errors)
  const { OPERATOR_DATABASE_URL, DATABASE_URL } = values
  const url = OPERATOR_DATABASE_URL ?? DATABASE_URL
  return url === undefined
    ? undefined
    : { url, variable: env[`${variable}_FILE`] ? `${variable}_FILE` : variable }
}

/**
 * Returns the server's role, which is the one in DATABASE_URL. Undefined if OPERATOR_DATABASE_URL is not set, so that the server
 * has no separate role, or if DATABASE_URL is invalid or contains no role.
 */
export function serverRoleOf(env: Variables): string | undefined {
  if (!isSet(env, 'OPERATOR_DATABASE_URL')) return undefined
  const { DATABASE_URL: url } = withSecretFiles(env, ['DATABASE_URL'], [])
  if (!url) return undefined
  try {
    return parseIntoClientConfig(parseAddress(url).url).user
  } catch {
    return undefined
  }
}

const MISSING_DATABASE = 'DATABASE_URL must be set when NODE_ENV is production'

function isDatabaseMissing(env: Variables, given: Readonly<Record<string, unknown>>): boolean {
  return given['NODE_ENV'] === 'production' && !isSet(env, 'DATABASE_URL')
}

const Ports = Type.Pick(Environment, ['PORT', 'METRICS_PORT'])

/** Returns the errors of settings that are valid on their own, but contradict each other. */
function conflictErrors(values: unknown): string[] {
  const isConflict = Value.Check(Ports, values) && values.METRICS_PORT === values.PORT && values.PORT !== 0
  return isConflict ? [`METRICS_PORT must be another port than PORT, not ${values.PORT}`] : []
}

/** Returns whether the OpenTelemetry variables turn on traces: with an endpoint, or with the exporter's default endpoint. */
function wantsTraces(values: Static<typeof Environment>): boolean {
  if (values.OTEL_SDK_DISABLED?.toLowerCase() === 'true') return false
  if (values.OTEL_TRACES_EXPORTER !== undefined) return values.OTEL_TRACES_EXPORTER === 'otlp'
  return (values.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT ?? values.OTEL_EXPORTER_OTLP_ENDPOINT) !== undefined
}

/** Parses `name:key`, or a key without a name, which is named after its place in the list. */
export function namedKey(entry: string, index: number): FixedKey {
  const [name, key] = entry.split(':')
  return name !== undefined && key !== undefined ? { name, key } : { name: `key-${index + 1}`, key: entry }
}
