import swagger from '@fastify/swagger'
import { type SchemaOptions, type TSchema, TypeGuard } from '@sinclair/typebox'
import type { FastifyInstance, FastifySchema } from 'fastify'
import { ApiError, ErrorBody, serviceUnavailable } from '../contract/errors.ts'
import { Reference } from '../contract/schema-types.ts'
import { SECURITY_SCHEME } from './authentication.ts'
import { BODY_LIMIT } from './json-body.ts'
import { unsupportedMediaType } from './media-type.ts'

declare module 'fastify' {
  interface FastifySchema {
    /** How settled an operation is; absent where it is stable. */
    'x-stability'?: 'experimental' | 'beta'
    /** Request headers for the document. Validation does not look at them: any text is a valid value. */
    requestHeaders?: Record<string, SchemaOptions>
  }
}

/**
 * Describes the routes that are registered after it as OpenAPI 3.1. `publicUrls` are the base addresses, production
 * first; without any, the document speaks of the server that it came from.
 */
export async function describeApi(app: FastifyInstance, publicUrls: readonly string[]): Promise<void> {
  app.addHook('onRoute', (route) => {
    if (route.schema && !route.schema.hide) {
      route.schema = {
        ...route.schema,
        response: { ...errorsOf(route.schema), ...Object(route.schema.response) },
      }
    }
  })
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Petstore Inventory API',
        version: '1.0.0',
        description:
          'The stock levels of the pets in a store. A petId is an int64: JavaScript callers need a JSON parser that ' +
          'keeps integers above 2^53 exact. Every response with a status of 400 or more has the body Error.',
        // Not `identifier`, which OpenAPI 3.0 does not have.
        license: { name: 'MIT', url: 'https://opensource.org/license/mit' },
      },
      servers: serversOf(publicUrls),
      tags: [{ name: 'Inventory', description: 'Stock levels' }],
      components: {
        securitySchemes: {
          [SECURITY_SCHEME]: {
            type: 'http',
            scheme: 'bearer',
            description: 'An API key, passed as the bearer token',
          },
        },
      },
    },
    // The name that a schema has in the code is the one it has for callers.
    refResolver: {
      buildLocalReference: (json, _base, _fragment, index) => String(json['$id'] ?? `schema-${index}`),
    },
    transform: ({ schema, url }) => ({ schema: publishedSchema(schema), url }),
  })
}

/** The document's own route; to be registered outside the scope that needs a key. */
export function serveDescription(app: FastifyInstance): void {
  app.get('/openapi.json', { schema: { hide: true } }, () => app.swagger())
}

/** The errors that the server itself may answer an operation with, whatever the operation does. */
function errorsOf({ params, body }: FastifySchema): Record<string, TSchema> {
  return {
    400: describeError(
      'The request is malformed, or a value in it is missing or invalid',
      body === undefined
        ? new ApiError(400, 'The request must have exactly one Host header.')
        : new ApiError(
            400,
            'The body must have the field quantity: an integer from 0 to 2147483647, as a JSON number.',
          ),
    ),
    408: describeError(
      'The request did not arrive in time',
      new ApiError(408, 'The request did not arrive in time.'),
    ),
    ...(body === undefined
      ? {}
      : {
          413: describeError(
            'The body is too large',
            new ApiError(413, `The body is too large; at most ${BODY_LIMIT} bytes are accepted.`),
          ),
          415: describeError(
            'The body is not application/json in UTF-8',
            unsupportedMediaType({ 'content-type': 'text/plain' }),
          ),
        }),
    ...(params === undefined
      ? {}
      : { 414: describeError('The path is too long', new ApiError(414, 'petId in the path is too long.')) }),
    417: describeError(
      'An expectation other than 100-continue',
      new ApiError(417, 'The only expectation that can be met is 100-continue.'),
    ),
    431: describeError(
      'The request line and headers are too large',
      new ApiError(431, 'The request line and headers are too large; at most 16384 bytes are accepted.'),
    ),
    500: describeError(
      'The service failed',
      new ApiError(
        500,
        'The service failed. Its log has the details under the X-Request-Id of this response.',
      ),
    ),
    503: describeError(
      'The service cannot answer now; the same request may succeed later',
      serviceUnavailable('The database cannot be reached or is too busy. Try again shortly.'),
      {
        'Retry-After': {
          type: 'integer',
          description: 'Seconds to wait before the next try',
        },
      },
    ),
    '4xx': describeError('Any other error of the request', new ApiError(400, 'The request is invalid.')),
    '5xx': describeError(
      'Any other failure of the service',
      new ApiError(
        500,
        'The service failed. Its log has the details under the X-Request-Id of this response.',
      ),
    ),
  }
}

/** The schema of an error response, with the body of `example` as its example. */
function describeError(
  description: string,
  example: ApiError,
  headers: Record<string, SchemaOptions> = {},
): TSchema {
  return Reference(ErrorBody, { description, examples: [example.body], headers })
}

function serversOf(publicUrls: readonly string[]): { url: string; description?: string }[] {
  if (publicUrls.length === 0) return [{ url: '/v1' }]
  const names = ['Production', 'Staging']
  return publicUrls.map((url, index) => ({ url, description: names[index] ?? `Environment ${index + 1}` }))
}

/**
 * A schema as callers see it: with the request headers that validation does not know, and with an integer for an int64
 * in the path, which is text to validation.
 */
function publishedSchema({ requestHeaders, ...schema }: FastifySchema): FastifySchema {
  const headers = requestHeaders && { type: 'object', properties: requestHeaders }
  return {
    ...schema,
    ...(headers && { headers }),
    params: publishedParameters(schema.params),
    response: Object.fromEntries(
      Object.entries(Object(schema.response)).map(([status, response]) => [
        status,
        publishedResponse(response),
      ]),
    ),
  }
}

function publishedParameters(params: unknown): unknown {
  if (!TypeGuard.IsObject(params)) return params
  const properties = Object.entries(params.properties).map(([name, { format, maxLength, ...property }]) => [
    name,
    format === 'int64-text'
      ? { ...property, type: 'integer', format: 'int64' }
      : { ...property, format, maxLength },
  ])
  return { ...params, properties: Object.fromEntries(properties) }
}

/**
 * A response with the header that all of them have, and in the form in which @fastify/swagger keeps an example: it drops
 * what stands beside a `$ref`.
 */
function publishedResponse(response: unknown): unknown {
  const { description, headers, examples, ...schema } = Object(response)
  const common = { description, headers: { ...headers, 'X-Request-Id': requestIdHeader } }
  if (examples === undefined) return { ...schema, ...common }
  return { ...common, content: { 'application/json': { schema, example: examples[0] } } }
}

const requestIdHeader = {
  type: 'string',
  description: 'Identifies the request in the log of the service',
} satisfies SchemaOptions
