import { isIP } from 'node:net'
import { FormatRegistry, KindGuard, type TObject, type TSchema, Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'

FormatRegistry.Set('base-url', (text) => /^https?:\/\/[^\s@]+\/v1$/.test(text) && URL.canParse(text))
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

/** One for lists and three for updates. With fewer, a single locked row would delay updates of other pets. */
const MIN_CONNECTIONS = 4

const otlpEndpoint = Type.String({ format: 'web-url', writeOnly: true, description: 'an http(s) address' })
const otlpProtocol = Type.String({ pattern: '^http/protobuf$', description: 'http/protobuf' })

/**
 * The schema of the server's environment variables. Each description completes the sentence "NAME must be …". `writeOnly` marks
 * secrets, which messages must not contain. An empty variable counts as unset; lists are comma-separated.
 */
export const Environment = Type.Object({
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
      'none, or transaction if a pooler in that mode, such as PgBouncer, is in front of the database',
  }),
  DATABASE_POOL_SIZE: Type.Integer({
    default: 10,
    minimum: MIN_CONNECTIONS,
    maximum: 1000,
    description: `an integer from ${MIN_CONNECTIONS} to 1000`,
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
    // They are public, but an invalid one may contain a password.
    writeOnly: true,
    description:
      'a comma-separated list of http(s) addresses that end in /v1, without user and password, production first',
  }),
  TRUST_PROXY: Type.Array(Type.String({ format: 'network' }), {
    default: [],
    description: 'a comma-separated list of IP addresses or networks such as 10.0.0.0/8',
  }),
})

/** The schema of the operators' command line. The server does not use OPERATOR_DATABASE_URL. */
export const OperatorEnvironment = Type.Object({
  NODE_ENV: Environment.properties.NODE_ENV,
  DATABASE_URL: Environment.properties.DATABASE_URL,
  OPERATOR_DATABASE_URL: Environment.properties.DATABASE_URL,
  DATABASE_POOLER: Environment.properties.DATABASE_POOLER,
})

/** Variables whose value may come from a file. */
export const SECRETS = ['DATABASE_URL', 'OPERATOR_DATABASE_URL', 'API_KEYS'] as const

export type Variables = Readonly<Record<string, string | undefined>>

/** Returns the variables that are set, converted to the types of the schema. Text that cannot be converted stays text. */
export function readVariables(schemas: TObject, env: Variables): Record<string, unknown> {
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

/** Returns one message per invalid value, even if the schema reports several errors for it. */
export function schemaErrors(schemas: TObject, values: unknown): Set<string> {
  const sentences = new Set<string>()
  for (const { path, value } of Value.Errors(schemas, values)) {
    const name = path.split('/')[1] ?? ''
    const schema = schemas.properties[name]
    const instead = schema?.['writeOnly'] ? '' : `, not ${JSON.stringify(value)}`
    sentences.add(`${name} must be ${schema?.description}${instead}`)
  }
  return sentences
}
