import type { FixedKey } from '../api-keys/fixed-keys.ts'
import { addressForPg, checkAddress, withoutPassword } from './addresses.ts'
import { ConfigurationError } from './errors.ts'
import { Environment, readSettings, type Variables, variableOf } from './variables.ts'

/** The validated settings of the server, with defaults. */
export type Config = Readonly<ReturnType<typeof loadConfig>>

/**
 * Reads the server's configuration from environment variables.
 *
 * @throws {ConfigurationError} if variables are missing or invalid; the message says for each what it must be
 */
export function loadConfig(env: Variables) {
  const { values, warnings } = load(env, (name) => name !== 'OPERATOR_DATABASE_URL')
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
    publicUrls: values.PUBLIC_URLS,
    trustProxy: values.TRUST_PROXY,
    /** What has no effect in the address. */
    warnings,
  })
}

/**
 * Reads the address of the database for the operators' command line: OPERATOR_DATABASE_URL or else DATABASE_URL, undefined if
 * neither is set. Ignores variables that only the server uses. The result names the variable, and says what has no effect.
 *
 * @throws {ConfigurationError} if variables are missing or invalid
 */
export function loadOperatorDatabase(env: Variables) {
  const name = isSet(env, 'OPERATOR_DATABASE_URL') ? 'OPERATOR_DATABASE_URL' : 'DATABASE_URL'
  const used = ['NODE_ENV', 'DATABASE_POOLER', 'OPERATOR_DATABASE_URL', name]
  const { values, warnings } = load(env, (setting) => used.includes(setting))
  const { [name]: url } = values
  return url === undefined
    ? undefined
    : { url: addressForPg(url, env), variable: variableOf(env, name), warnings }
}

/** Returns the role in DATABASE_URL, which is the server's; undefined if it is not set, or contains none. */
export function serverRoleOf(env: Variables): string | undefined {
  const { DATABASE_URL: url = '' } = readSettings(env, (name) => name === 'DATABASE_URL').values
  return URL.canParse(url) ? decodeURIComponent(new URL(url).username) || undefined : undefined
}

/** Describes the effective settings of the server and the command line without secrets, their errors, and what has no effect. */
export function describeSettings(env: Variables) {
  const { values, errors, warnings } = checkSettings(env, () => true)
  const shown: Readonly<Record<string, unknown>> = {
    ...values,
    DATABASE_URL: values.DATABASE_URL && withoutPassword(values.DATABASE_URL),
    OPERATOR_DATABASE_URL: values.OPERATOR_DATABASE_URL && withoutPassword(values.OPERATOR_DATABASE_URL),
    API_KEYS: values.API_KEYS.map(namedKey).map(({ name }) => name),
  }
  const settings = Object.keys(Environment.properties).map((name) => ({
    name: variableOf(env, name),
    /** Undefined if the setting has no value. An invalid one is not in effect. */
    value: [shown[name] ?? []].flat().join(', ') || undefined,
  }))
  return { settings, errors, warnings }
}

/**
 * Reads the used settings, and adds the errors that depend on several of them, those of addresses, and what has no effect in these.
 */
function checkSettings(env: Variables, isUsed: (name: string) => boolean) {
  const { values, errors } = readSettings(env, isUsed)
  const { NODE_ENV, DATABASE_POOLER } = values
  const warnings: string[] = []
  for (const name of ['DATABASE_URL', 'OPERATOR_DATABASE_URL'] as const) {
    const { [name]: url } = values
    if (url === undefined) continue
    const found = checkAddress(name, url, env)
    errors.push(...found.errors)
    warnings.push(...found.warnings)
  }
  const isMissing = (name: string): boolean => isUsed(name) && !isSet(env, name)
  if (NODE_ENV === 'production' && isMissing('DATABASE_URL'))
    errors.push('DATABASE_URL must be set when NODE_ENV is production')
  if (DATABASE_POOLER === 'transaction' && isMissing('OPERATOR_DATABASE_URL'))
    errors.push(
      'OPERATOR_DATABASE_URL must be set if DATABASE_POOLER is: the command line needs a direct connection',
    )
  return { values, errors, warnings }
}

function load(env: Variables, isUsed: (name: string) => boolean) {
  const { errors, ...settings } = checkSettings(env, isUsed)
  if (errors.length > 0) throw new ConfigurationError(errors)
  return settings
}

/** Whether a setting has a value or should come from a file, which may be unreadable. */
function isSet(env: Variables, name: string): boolean {
  return Boolean(env[variableOf(env, name)]?.trim())
}

/** Parses `name:key`, or a key without a name, which is named after its place in the list. */
function namedKey(entry: string, index: number): FixedKey {
  const [name, key] = entry.split(':')
  return name !== undefined && key !== undefined ? { name, key } : { name: `key-${index + 1}`, key: entry }
}
