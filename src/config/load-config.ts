import type { FixedKey } from '../api-keys/key.ts'
import { tracingSettings } from '../tracing/variables.ts'
import type { Variables } from './environment.ts'
import { findVariable, readSettings } from './variables.ts'

/** The settings of the server, with defaults. */
export type Config = Readonly<ReturnType<typeof loadConfig>>

/** Reads the settings of the server. Throws an OperatorError that says for each variable what it must be. */
export function loadConfig(env: Variables) {
  const tracing = tracingSettings(env)
  const isUsed = (name: string): boolean => name !== 'OPERATOR_DATABASE_URL'
  const values = readSettings(env, isUsed, tracing.errors)
  return Object.freeze({
    host: values.HOST,
    port: values.PORT,
    /** Undefined if metrics are not served. */
    metricsPort: values.METRICS_PORT,
    /** Undefined if the service starts a local database itself, which it does not in production. */
    databaseUrl: values.DATABASE_URL,
    /** Whether a connection pooler in transaction mode is in front of the database. */
    behindPooler: values.DATABASE_POOLER === 'transaction',
    /** Maximum connections for requests. */
    databasePoolSize: values.DATABASE_POOL_SIZE,
    apiKeys: values.API_KEYS.map(namedKey),
    logLevel: values.LOG_LEVEL,
    publicUrls: values.PUBLIC_URLS,
    trustProxy: values.TRUST_PROXY,
    /** Whether the variables of OpenTelemetry turn on traces. */
    traces: tracing.isEnabled,
  })
}

/**
 * Reads the address of the database for the command line: OPERATOR_DATABASE_URL or else DATABASE_URL; undefined if neither is set.
 * Throws an OperatorError for invalid variables, but for those that only the server uses.
 */
export function loadOperatorDatabase(env: Variables) {
  const operatorAddress = env[findVariable(env, 'OPERATOR_DATABASE_URL')]?.trim()
  const name = operatorAddress ? 'OPERATOR_DATABASE_URL' : 'DATABASE_URL'
  const used = ['NODE_ENV', 'DATABASE_POOLER', 'OPERATOR_DATABASE_URL', name]
  const { [name]: url } = readSettings(env, (setting) => used.includes(setting))
  return url === undefined ? undefined : { url, variable: findVariable(env, name) }
}

/** Parses `name:key`, or a key without a name, which is named after its place in the list. */
function namedKey(entry: string, index: number): FixedKey {
  const [name, key] = entry.split(':')
  return name !== undefined && key !== undefined ? { name, key } : { name: `key-${index + 1}`, key: entry }
}
