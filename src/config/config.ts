import { availableParallelism } from 'node:os'
import { type Static, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { parseIntoClientConfig } from 'pg-connection-string'
import type { FixedKey } from '../api-keys/fixed-keys.ts'
import { parseAddress } from '../database/address.ts'
import { addressErrors } from './addresses.ts'
import { ConfigurationError } from './errors.ts'
import { isSet, withSecretFiles } from './secret-files.ts'
import {
  CONNECTIONS_PER_WORKER,
  Environment,
  OperatorEnvironment,
  readVariables,
  schemaErrors,
  type Variables,
} from './variables.ts'

/** The settings from outside: checked, complete and frozen. */
export interface Config {
  readonly host: string
  readonly port: number
  /** Where metrics are served; absent where they are not. */
  readonly metricsPort: number | undefined
  /** Absent where nobody set up a database; never so in production. */
  readonly databaseUrl: string | undefined
  /** The address of a standby to read lists from; absent where the primary is to be read. */
  readonly readDatabaseUrl: string | undefined
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

/** What the operators' command line works on. */
export interface OperatorDatabase {
  readonly url: string
  /** The variable that names it, for messages. */
  readonly variable: string
}

/**
 * Reads the configuration out of environment variables.
 *
 * @throws {ConfigurationError} naming every variable that is missing or wrong, and what it must be
 */
export function loadConfig(env: Variables): Config {
  const errors: string[] = []
  const given = readVariables(
    Environment,
    withSecretFiles(env, ['DATABASE_URL', 'READ_DATABASE_URL', 'API_KEYS'], errors),
  )
  const values: unknown = Value.Default(Environment, given)
  errors.push(...schemaErrors(Environment, values))
  errors.push(
    ...addressErrors('DATABASE_URL', given, 'primary'),
    ...addressErrors('READ_DATABASE_URL', given, 'standby'),
  )
  if (isDatabaseMissing(env, given)) errors.push(MISSING_DATABASE)
  else if (isSet(env, 'READ_DATABASE_URL') && !isSet(env, 'DATABASE_URL')) errors.push(MISSING_PRIMARY)
  if (errors.length > 0 || !Value.Check(Environment, values)) throw new ConfigurationError(errors)
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
    readDatabaseUrl: values.READ_DATABASE_URL,
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
      'OPERATOR_DATABASE_URL must be set where DATABASE_POOLER is: the command line needs a connection that no pooler shares',
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
 * The address of the standby that the server reads lists from, for the operators' command line; undefined where none is
 * set. No other variable is looked at.
 *
 * @throws {ConfigurationError} as `loadConfig`
 */
export function loadReadDatabase(env: Variables): string | undefined {
  const errors: string[] = []
  const variables = Type.Pick(Environment, ['READ_DATABASE_URL'])
  const given = readVariables(variables, withSecretFiles(env, ['READ_DATABASE_URL'], errors))
  errors.push(...addressErrors('READ_DATABASE_URL', given, 'standby'))
  if (errors.length > 0 || !Value.Check(variables, given)) throw new ConfigurationError(errors)
  return given.READ_DATABASE_URL
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

const MISSING_PRIMARY = 'DATABASE_URL must be set where READ_DATABASE_URL is: it names the primary'

const MISSING_DATABASE = 'DATABASE_URL must be set when NODE_ENV is production'

function isDatabaseMissing(env: Variables, given: Readonly<Record<string, unknown>>): boolean {
  return given['NODE_ENV'] === 'production' && !isSet(env, 'DATABASE_URL')
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

/** Returns whether a variable says where to send traces, or turns on the exporter with its default address. */
function wantsTraces(values: Static<typeof Environment>): boolean {
  if (values.OTEL_SDK_DISABLED?.toLowerCase() === 'true') return false
  if (values.OTEL_TRACES_EXPORTER !== undefined) return values.OTEL_TRACES_EXPORTER === 'otlp'
  return (values.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT ?? values.OTEL_EXPORTER_OTLP_ENDPOINT) !== undefined
}

/** `name:key`, or a key alone, which is then named by its place in the list. */
export function namedKey(entry: string, index: number): FixedKey {
  const [name, key] = entry.split(':')
  return name !== undefined && key !== undefined ? { name, key } : { name: `key-${index + 1}`, key: entry }
}
