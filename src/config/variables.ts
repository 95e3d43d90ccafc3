import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import { FormatRegistry, KindGuard, type Static, type TSchema, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { ConfigurationError, readFailureOf } from './errors.ts'

/** A format. Its name completes the sentence "NAME must be …", in a list "… a comma-separated list of …". */
function format(name: string, isValid: (text: string) => boolean): { format: string } {
  FormatRegistry.Set(name, isValid)
  return { format: name }
}

const hostName = format('a host name or an IP address', (text) => /^\S+$/.test(text))
const boolean = format('true or false', (text) => /^(true|false)$/i.test(text))
const webAddress = format('an http(s) address', (text) => /^https?:\/\//.test(text) && URL.canParse(text))
const baseAddress = format(
  'http(s) addresses that end in /v1, without user and password, production first',
  (text) => /^https?:\/\/[^\s@]+\/v1$/.test(text) && URL.canParse(text),
)
const network = format('IP addresses or networks such as 10.0.0.0/8', (text) => {
  const [address = '', bits = '0', ...rest] = text.split('/')
  const widest = { 4: 32, 6: 128 }[isIP(address)] ?? -1
  return rest.length === 0 && /^\d{1,3}$/.test(bits) && Number(bits) <= widest
})
const apiKey = format(
  'keys or name:key pairs; a key has letters, digits and any of - . _ ~ + / (RFC 6750)',
  (text) => /^([\w-]{1,64}:)?[\w.~+/-]+=*$/.test(text),
)
const port = { minimum: 0, maximum: 65535 }
const databaseAddress = Type.Optional(Type.String({ writeOnly: true }))
const endpoint = Type.Optional(Type.String({ ...webAddress, writeOnly: true }))
const protocol = Type.Optional(oneOf(['http/protobuf']))

/**
 * The environment variables that the server and the command line read. An empty variable counts as unset; lists are
 * comma-separated. `writeOnly` marks those that may contain a secret, which no message shows.
 */
export const Environment = Type.Object({
  NODE_ENV: Type.Optional(oneOf(['production', 'development', 'test'])),
  HOST: Type.String({ ...hostName, default: '127.0.0.1' }),
  PORT: Type.Integer({ ...port, default: 3000 }),
  METRICS_PORT: Type.Optional(Type.Integer(port)),
  DATABASE_URL: databaseAddress,
  OPERATOR_DATABASE_URL: databaseAddress,
  DATABASE_POOLER: oneOf(['none', 'transaction'], { default: 'none' }),
  // One for lists and three for updates. With fewer, a single locked row would delay updates of other pets.
  DATABASE_POOL_SIZE: Type.Integer({ minimum: 4, maximum: 1000, default: 10 }),
  API_KEYS: Type.Array(Type.String(apiKey), { default: [], writeOnly: true }),
  LOG_LEVEL: oneOf(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'], { default: 'info' }),
  OTEL_SDK_DISABLED: Type.Optional(Type.String(boolean)),
  OTEL_TRACES_EXPORTER: Type.Optional(oneOf(['otlp', 'none'])),
  OTEL_EXPORTER_OTLP_ENDPOINT: endpoint,
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: endpoint,
  OTEL_EXPORTER_OTLP_PROTOCOL: protocol,
  OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: protocol,
  // They are public, but an invalid one may contain a password.
  PUBLIC_URLS: Type.Array(Type.String(baseAddress), { default: [], writeOnly: true }),
  TRUST_PROXY: Type.Array(Type.String(network), { default: [] }),
})

function oneOf<Text extends string>(texts: readonly Text[], options: { default?: Text } = {}) {
  const schemas = texts.map((text) => Type.Literal(text))
  return Type.Union(schemas, { ...options, format: `one of ${texts.join(', ')}` })
}

export type Variables = Readonly<Record<string, string | undefined>>
export type Values = Readonly<Record<string, unknown>>

/** Returns `NAME_FILE` if a setting should come from a file, as Docker and Kubernetes mount secrets; otherwise its name. */
export function variableOf(env: Variables, name: string): string {
  const hasFile = ['DATABASE_URL', 'OPERATOR_DATABASE_URL', 'API_KEYS'].includes(name)
  return hasFile && env[`${name}_FILE`]?.trim() ? `${name}_FILE` : name
}

/** Returns those of the settings that have a value, converted if possible. Adds errors of files that cannot be used. */
export function readVariables(env: Variables, names: readonly string[], errors: string[]): Values {
  const values: Record<string, unknown> = {}
  for (const [name, schema] of Object.entries<TSchema>(Environment.properties)) {
    const variable = variableOf(env, name)
    const given = names.includes(name) ? env[variable]?.trim() : ''
    const text = variable === name ? given : contentOf(variable, given, errors)
    if (variable !== name && env[name]?.trim()) errors.push(`${name} and ${variable} must not both be set`)
    if (text) values[name] = convert(schema, text)
  }
  return values
}

function contentOf(variable: string, file: string | undefined, errors: string[]): string | undefined {
  if (!file) return undefined
  try {
    const content = readFileSync(file, 'utf8').trim()
    if (content === '') errors.push(`${variable} must be a file with a value in it`)
    return content
  } catch (error) {
    errors.push(`${variable} must be a file that can be read: ${readFailureOf(error)}`)
    return undefined
  }
}

function convert(schema: TSchema, text: string): unknown {
  if (KindGuard.IsArray(schema)) {
    const entries = text.split(',').map((entry) => entry.trim())
    return entries.filter((entry) => entry !== '')
  }
  return KindGuard.IsInteger(schema) && /^\d{1,15}$/.test(text) ? Number(text) : text
}

/**
 * Reads some of the settings. The others have their defaults.
 *
 * @param otherErrors returns the errors that depend on other settings or on files
 * @throws {ConfigurationError} with a message for each invalid setting: what it must be and, unless that is secret, what it is
 */
export function readSettings(
  env: Variables,
  names: readonly string[],
  otherErrors: (values: Values) => readonly string[],
): Static<typeof Environment> {
  const errors: string[] = []
  const given = readVariables(env, names, errors)
  const values: unknown = Value.Default(Environment, { ...given })
  for (const [name, schema] of Object.entries<TSchema>(Environment.properties)) {
    const { [name]: value = schema['default'] } = given
    if (value === undefined || Value.Check(schema, value)) continue
    errors.push(
      `${name} must be ${expectedBy(schema)}${schema['writeOnly'] ? '' : `, not ${JSON.stringify(value)}`}`,
    )
  }
  errors.push(...otherErrors(given))
  if (errors.length > 0 || !Value.Check(Environment, values)) throw new ConfigurationError(errors)
  return values
}

function expectedBy(schema: TSchema): string {
  if (KindGuard.IsInteger(schema)) return `an integer from ${schema.minimum} to ${schema.maximum}`
  if (KindGuard.IsArray(schema)) return `a comma-separated list of ${schema.items['format']}`
  return schema['format']
}
