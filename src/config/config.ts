import type { Static } from '@sinclair/typebox'
import type { FixedKey } from '../api-keys/fixed-keys.ts'
import { addressErrors, addressForPg, addressWarnings } from './addresses.ts'
import { ConfigurationError } from './errors.ts'
import { type Environment, readSettings, type SettingError, type Variables, variableOf } from './variables.ts'

/** The validated settings of the server, with defaults. */
export type Config = Readonly<ReturnType<typeof loadConfig>>

/**
 * Reads the server's configuration from environment variables.
 *
 * @throws {ConfigurationError} if variables are missing or invalid; the message says for each what it must be
 */
export function loadConfig(env: Variables) {
  const { values, errors } = checkSettings(env)
  throwAny(errors.filter(([name]) => name !== 'OPERATOR_DATABASE_URL'))
  const { DATABASE_URL: url } = values
  return Object.freeze({
    host: values.HOST,
    port: values.PORT,
    /** Undefined if metrics are not served. */
    metricsPort: values.METRICS_PORT,
    /** Undefined if the service starts a local database itself, which it does not in production. */
    databaseUrl: url && addressForPg(url, env),
    /** Whether a connection pooler in transaction mode is in front of the database. */
    behindPooler: values.DATABASE_POOLER === 'transaction',
    /** Maximum connections for requests. */
    databasePoolSize: values.DATABASE_POOL_SIZE,
    apiKeys: values.API_KEYS.map(namedKey),
    logLevel: values.LOG_LEVEL,
    /** Whether tracing is on. The OpenTelemetry SDK reads its other settings from the environment itself. */
    traces: wantsTraces(values),
    publicUrls: values.PUBLIC_URLS,
    trustProxy: values.TRUST_PROXY,
    /** What has no effect in the address. */
    warnings: url === undefined ? [] : addressWarnings('DATABASE_URL', url),
  })
}

/**
 * Reads the address of the database for the operators' command line: OPERATOR_DATABASE_URL or else DATABASE_URL, undefined if
 * neither is set. Ignores variables that only the server uses. The result names the variable, and says what has no effect.
 *
 * @throws {ConfigurationError} if variables are missing or invalid
 */
export function loadOperatorDatabase(env: Variables) {
  const { values, errors } = checkSettings(env)
  const name = isSet(env, 'OPERATOR_DATABASE_URL') ? 'OPERATOR_DATABASE_URL' : 'DATABASE_URL'
  const used = ['NODE_ENV', 'DATABASE_POOLER', 'OPERATOR_DATABASE_URL', name]
  throwAny(errors.filter(([setting]) => used.includes(setting)))
  const { [name]: url } = values
  if (url === undefined) return undefined
  return {
    url: addressForPg(url, env),
    variable: variableOf(env, name),
    warnings: addressWarnings(name, url),
  }
}

/**
 * Returns the server's role, which is the one in DATABASE_URL. Undefined if OPERATOR_DATABASE_URL is not set, so that the server
 * has no separate role, or if DATABASE_URL is invalid or contains no role.
 */
export function serverRoleOf(env: Variables): string | undefined {
  const { DATABASE_URL: url } = readSettings(env).values
  if (!isSet(env, 'OPERATOR_DATABASE_URL') || url === undefined || !URL.canParse(url)) return undefined
  const { username, searchParams } = new URL(url)
  return searchParams.get('user') || decodeURIComponent(username) || undefined
}

/** Reads the settings as `readSettings` does, and adds the errors of addresses and those that depend on several settings. */
export function checkSettings(env: Variables) {
  const { given, values, errors } = readSettings(env)
  const { NODE_ENV, PORT, METRICS_PORT, DATABASE_POOLER } = values
  const refuse = (name: string, rule: string): number => errors.push([name, `${name} must ${rule}`])
  if (METRICS_PORT === PORT && PORT !== 0) refuse('METRICS_PORT', `be another port than PORT, not ${PORT}`)
  for (const name of ['DATABASE_URL', 'OPERATOR_DATABASE_URL'] as const) {
    const { [name]: url } = values
    for (const error of url === undefined ? [] : addressErrors(name, url, env)) errors.push([name, error])
  }
  if (NODE_ENV === 'production' && !isSet(env, 'DATABASE_URL'))
    refuse('DATABASE_URL', 'be set when NODE_ENV is production')
  if (DATABASE_POOLER === 'transaction' && !isSet(env, 'OPERATOR_DATABASE_URL'))
    refuse(
      'OPERATOR_DATABASE_URL',
      'be set if DATABASE_POOLER is: the command line needs a direct connection',
    )
  return { given, values, errors }
}

function throwAny(errors: readonly SettingError[]): void {
  if (errors.length > 0) throw new ConfigurationError(errors.map(([, message]) => message))
}

/** Whether a setting has a value or should come from a file, which may be unreadable. */
function isSet(env: Variables, name: string): boolean {
  return Boolean(env[variableOf(env, name)]?.trim())
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
