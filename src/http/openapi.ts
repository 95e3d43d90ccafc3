import swagger from '@fastify/swagger'
import { type SchemaOptions, type TSchema, TypeGuard } from '@sinclair/typebox'
import type { FastifySchema } from 'fastify'
import fp from 'fastify-plugin'
import { ApiError, ErrorBody } from '../contract/api-error.ts'
import { Reference } from '../contract/schema-types.ts'
import { MAX_BODY_BYTES } from './json-body.ts'

declare module 'fastify' {
  interface FastifySchema {
    /** Absent if an operation is stable. */
    'x-stability'?: 'experimental' | 'beta'
  }
}

export interface OpenApiOptions {
  /** Base addresses, production first. Without one, the document names the server that it was loaded from. */
  readonly publicUrls: readonly string[]
}

/** Generates an OpenAPI 3.1 document from the routes that are registered after this plugin. */
export const openApi = fp<OpenApiOptions>(
  async (app, { publicUrls }) => {
    await app.register(swagger, {
      openapi: {
        openapi: '3.1.0',
        info: {
          title: 'Petstore Inventory API',
          version: '1.0.0',
          description:
            'The stock levels of the pets in a store: list all of them, or set the quantity of one.\n\n' +
            'Ids are int64: JavaScript and jq 1.6 round them above 2^53, so use a JSON parser that keeps them exact.\n\n' +
            'Every response with a status of 400 or more has an Error body.',
          contact: { name: 'The operator of this service' },
          // Not `identifier`, which OpenAPI 3.0 lacks.
          license: { name: 'MIT', url: 'https://opensource.org/license/mit' },
        },
        servers: publicUrls.length === 0 ? [{ url: '/v1' }] : publicUrls.map(toServer),
        tags: [{ name: 'Inventory', description: 'Stock levels' }],
        components: {
          securitySchemes: {
            apiKey: { type: 'http', scheme: 'bearer', description: 'An API key, passed as the bearer token' },
          },
        },
      },
      // Publishes schemas under their `$id`.
      refResolver: {
        buildLocalReference: (json, _base, _fragment, index) => String(json['$id'] ?? `schema-${index}`),
      },
      transform: ({ schema, url }) => ({ schema: publishedSchema(schema), url }),
    })
  },
  { name: 'openapi' },
)

/** The error responses that every operation with such parameters and body can have. All require a key; those with a body write. */
function commonErrors({ params, body }: FastifySchema): Record<string, TSchema> {
  const describe = (description: string, headers: Record<string, SchemaOptions> = {}): TSchema =>
    Reference(ErrorBody, { description, headers })
  const header = (name: string, type: string, description: string) => ({ [name]: { type, description } })
  const hint = body ? 'unless the code is nothing_changed, the update may have been made' : 'try again later'
  const retryAfter = header('Retry-After', 'integer', 'Seconds to wait before trying again')
  const challenge = header('WWW-Authenticate', 'string', 'How to authenticate (RFC 6750)')
  const accepted = 'The accepted media type; absent if only the content coding is wrong'
  return {
    400: describe('The request is malformed, or a value in it is missing or invalid'),
    401: describe('API key missing or invalid', challenge),
    408: describe('The request did not arrive in time'),
    ...(body !== undefined && {
      403: describe('The API key is read-only', challenge),
      413: describe(`The body is larger than ${MAX_BODY_BYTES} bytes`),
      415: describe('The body is not application/json in UTF-8', header('Accept-Patch', 'string', accepted)),
    }),
    ...(params !== undefined && { 414: describe('The path is too long') }),
    429: describe('The key or the address is over the rate limit of the balancer', retryAfter),
    431: describe('The request line and headers are too large, or there are too many headers'),
    500: describe('Internal error'),
    503: describe(`The service cannot answer now; ${hint}`, retryAfter),
    // Not 4XX and 5XX, for which some client generators emit code that does not compile.
    default: describe('Any other error'),
  }
}

function toServer(url: string, index: number) {
  return { url, description: ['Production', 'Staging'][index] ?? `Environment ${index + 1}` }
}

/** Returns the schema as callers see it: with the common errors, and an int64 in the path, which is validated as text, as an integer. */
function publishedSchema(schema: FastifySchema): FastifySchema {
  const responses = Object.entries({ ...commonErrors(schema), ...Object(schema.response) })
  return {
    ...schema,
    security: [{ apiKey: [] }],
    params: publishedParameters(schema.params),
    response: Object.fromEntries(responses.map(publishedResponse)),
  }
}

function publishedParameters(params: unknown): unknown {
  if (!TypeGuard.IsObject(params)) return params
  const int64 = { type: 'integer', format: 'int64', maxLength: undefined }
  const properties = Object.entries(params.properties).map(([name, property]) => [
    name,
    property['format'] === 'int64-text' ? { ...property, ...int64 } : property,
  ])
  return { ...params, properties: Object.fromEntries(properties) }
}

/**
 * Adds the header that all responses have, and the example of an error, and puts the example where @fastify/swagger keeps it: it
 * drops the siblings of a `$ref`.
 */
function publishedResponse([status, response]: [string, unknown]): [string, unknown] {
  const { description, headers, examples, ...schema } = Object(response)
  const requestId = { type: 'string', description: 'Identifies the request in the log of the service' }
  const described = { description, headers: { ...headers, 'X-Request-Id': requestId } }
  const isError = !/^[23]/.test(status)
  if (examples === undefined && !isError) return [status, { ...schema, ...described }]
  const example = isError ? new ApiError(Number(status) || 400, `${description}.`).body : examples[0]
  return [status, { ...described, content: { 'application/json': { schema, example } } }]
}
