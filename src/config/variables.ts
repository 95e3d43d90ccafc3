import { isIP } from 'node:net'
import { FormatRegistry, KindGuard, type TSchema, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { parseAddress } from '../database/address.ts'
import { OperatorError, toMessage } from '../database/operator-error.ts'
import { readText, type Variables } from './environment.ts'

/** A format. `expected` completes the sentence "NAME must be …", in a list "… a comma-separated list of …". */
function format(name: string, expected: string, isValid: (text: string) => boolean) {
  FormatRegistry.Set(name, isValid)
  return { format: name, expected }
}

const baseAddress = format(
  'base-address',
  'http(s) addresses that end in /v1, without user and password, production first',
  (text) => /^https?:\/\/[^\s@]+\/v1$/.test(text) && URL.canParse(text),
)
const network = format('network', 'IP addresses or networks such as 10.0.0.0/8, none of them /0', (text) => {
  const [, address = '', bits = '1'] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(text) ?? []
  return Number(bits) >= 1 && Number(bits) <= ({ 4: 32, 6: 128 }[isIP(address)] ?? 0)
})
const apiKey = format(
  'api-key',
  'keys or name:key pairs; a key has letters, digits and any of - . _ ~ + / (RFC 6750)',
  (text) => /^([\w-]{1,64}:)?[\w.~+/-]+=*$/.test(text),
)
const port = { minimum: 0, maximum: 65535 }
const databaseAddress = Type.Optional(Type.String({ writeOnly: true }))

/** The settings. An empty one counts as unset. `writeOnly` marks those that may contain a secret, which no message shows. */
export const Environment = Type.Object({
  NODE_ENV: Type.Optional(choice(['production', 'development', 'test'])),
  HOST: Type.String({ default: '127.0.0.1' }),
  PORT: Type.Integer({ ...port, default: 3000 }),
  METRICS_PORT: Type.Optional(Type.Integer(port)),
  DATABASE_URL: databaseAddress,
  OPERATOR_DATABASE_URL: databaseAddress,
  DATABASE_POOLER: choice(['none', 'transaction'], { default: 'none' }),
  // One for lists and three for updates. With fewer, a single locked row would delay updates of other pets.
  DATABASE_POOL_SIZE: Type.Integer({ minimum: 4, maximum: 1000, default: 10 }),
  API_KEYS: Type.Array(Type.String(apiKey), { default: [], writeOnly: true }),
  LOG_LEVEL: choice(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'], { default: 'info' }),
  // They are public, but an invalid one may contain a password.
  PUBLIC_URLS: Type.Array(Type.String(baseAddress), { default: [], writeOnly: true }),
  TRUST_PROXY: Type.Array(Type.String(network), { default: [] }),
})

function choice<const Text extends string>(texts: readonly Text[], options: { default?: Text } = {}) {
  const schemas = texts.map((text) => Type.Literal(text))
  return Type.Unsafe<Text>(Type.Union(schemas, { ...options, expected: `one of ${texts.join(', ')}` }))
}

/** Returns `NAME_FILE` if a setting comes from a file, as Docker and Kubernetes mount secrets; otherwise its name. */
export function findVariable(env: Variables, name: string): string {
  const hasFile = ['DATABASE_URL', 'OPERATOR_DATABASE_URL', 'API_KEYS'].includes(name)
  return hasFile && env[`${name}_FILE`]?.trim() ? `${name}_FILE` : name
}

/**
 * Reads the used settings, and returns them with defaults.
 *
 * @throws {OperatorError} with these errors and all others: each says what a setting must be and, unless that is secret, what it is
 */
export function readSettings(
  env: Variables,
  isUsed: (name: string) => boolean,
  otherErrors: readonly string[] = [],
) {
  const valid: Record<string, unknown> = {}
  const errors = [...otherErrors]
  for (const [name, schema] of Object.entries<TSchema>(Environment.properties)) {
    if (!isUsed(name)) continue
    try {
      const text = readValue(env, name)
      if (!text) continue
      if (schema === databaseAddress) parseAddress(text, name)
      const value = convert(schema, text)
      const actual = schema['writeOnly'] ? '' : `, not ${JSON.stringify(value)}`
      if (!Value.Check(schema, value)) throw new Error(`${name} must be ${describeExpected(schema)}${actual}`)
      valid[name] = value
    } catch (error) {
      errors.push(toMessage(error))
    }
  }
  const values = Value.Parse(Environment, valid)
  const isMissing = (name: string): boolean => isUsed(name) && !env[findVariable(env, name)]?.trim()
  if (values.NODE_ENV === 'production' && isMissing('DATABASE_URL'))
    errors.push('DATABASE_URL must be set when NODE_ENV is production')
  if (values.DATABASE_POOLER === 'transaction' && isMissing('OPERATOR_DATABASE_URL'))
    errors.push(
      'OPERATOR_DATABASE_URL must be set if DATABASE_POOLER is: the command line needs a direct connection',
    )
  const keys = values.API_KEYS.map((entry) => entry.replace(/^.*:/, ''))
  if (new Set(keys).size < keys.length)
    errors.push('API_KEYS must have each key once: without one of its names, it would still be valid')
  if (errors.length > 0)
    throw new OperatorError('The configuration is incomplete or invalid:', { details: errors })
  return values
}

/** Returns the text of a setting, which may come from a file. */
function readValue(env: Variables, name: string): string | undefined {
  const variable = findVariable(env, name)
  const text = env[variable]?.trim()
  if (variable === name || !text) return text
  if (env[name]?.trim()) throw new Error(`${name} and ${variable} must not both be set`)
  const content = readText(text, variable).trim()
  if (content === '') throw new Error(`${variable} must name a file that is not empty`)
  return content
}

function convert(schema: TSchema, text: string): unknown {
  if (KindGuard.IsArray(schema)) return text.split(',').flatMap((entry) => entry.trim() || [])
  return KindGuard.IsInteger(schema) && /^\d{1,15}$/.test(text) ? Number(text) : text
}

function describeExpected(schema: TSchema): string {
  if (KindGuard.IsInteger(schema)) return `an integer from ${schema.minimum} to ${schema.maximum}`
  if (KindGuard.IsArray(schema)) return `a comma-separated list of ${schema.items['expected']}`
  return schema['expected']
}
