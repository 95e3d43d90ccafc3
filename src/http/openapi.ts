import swagger from '@fastify/swagger'
import { type SchemaOptions, type TSchema, TypeGuard } from '@sinclair/typebox'
import type { FastifyInstance, FastifySchema } from 'fastify'
import { ApiError, ErrorBody } from '../contract/errors.ts'
import { Reference } from '../contract/schema-types.ts'
import { hostRequired } from './ambiguity.ts'
import { SECURITY_SCHEME } from './authentication.ts'
import { headersTooLarge, requestTimeout } from './connections/malformed-requests.ts'
import { databaseUnavailable, internalError } from './error-handler.ts'
import { bodyTooLarge, unsupportedMediaType } from './json-body.ts'
import { serveDocument } from './static-document.ts'
import { missingField, parameterTooLong } from './validation.ts'

declare module 'fastify' {
  interface FastifySchema {
    /** Stability of an operation; absent if it is stable. */
    'x-stability'?: 'experimental' | 'beta'
  }
}

/**
 * Generates an OpenAPI 3.1 document from the routes that are registered after this call. `publicUrls` are the base
 * addresses, production first; without any, the document names the server that it was loaded from.
 */
export async function generateOpenApi(app: FastifyInstance, publicUrls: readonly string[]): Promise<void> {
  app.addHook('onRoute', function (route) {
    if (route.schema && !route.schema.hide) {
      const errors = commonErrors(route.schema, (id) => this.getSchema(id))
      route.schema = { ...route.schema, response: { ...errors, ...Object(route.schema.response) } }
    }
  })
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Petstore Inventory API',
        version: '1.0.0',
        description:
          'The stock levels of the pets in a store. Ids are int64: JavaScript callers need a JSON parser that keeps ' +
          'integers above 2^53 exact. Every response with a status of 400 or more has the body Error.',
        contact: { name: 'The operator of this service' },
        // Not `identifier`, which OpenAPI 3.0 lacks.
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
    // Publishes schemas under their `$id`.
    refResolver: {
      buildLocalReference: (json, _base, _fragment, index) => String(json['$id'] ?? `schema-${index}`),
    },
    transform: ({ schema, url }) => ({ schema: publishedSchema(schema), url }),
  })
}

/** Serves the document at `/openapi.json`. Register it outside the scope that requires an API key. */
export function serveOpenApi(app: FastifyInstance): void {
  serveDocument(app, {
    url: '/openapi.json',
    type: 'application/json; charset=utf-8',
    content: () => JSON.stringify(app.swagger()),
  })
}

/** The error responses that every operation with such parameters and body can have. `getSchema` finds what `body` refers to. */
function commonErrors(
  { params, body }: FastifySchema,
  getSchema: (id: string) => unknown,
): Record<string, TSchema> {
  const bodySchema = getSchema(String(Object(body).$ref).replace('#', ''))
  const [field]: string[] = Object(bodySchema).required ?? []
  const [parameter] = TypeGuard.IsObject(params) ? Object.entries(params.properties) : []
  return {
    400: describeError(
      'The request is malformed, or a value in it is missing or invalid',
      field === undefined ? hostRequired() : missingField(bodySchema, field),
    ),
    408: describeError('The request did not arrive in time', requestTimeout()),
    ...(body === undefined
      ? {}
      : {
          413: describeError('The body is too large', bodyTooLarge()),
          415: describeError(
            'The body is not application/json in UTF-8',
            unsupportedMediaType({ 'content-type': 'text/plain' }),
            {
              'Accept-Patch': {
                type: 'string',
                description: 'The accepted media type; absent if only the content coding is wrong',
              },
            },
          ),
        }),
    ...(parameter === undefined
      ? {}
      : {
          414: describeError(
            'The path is too long',
            parameterTooLong(parameter[0], parameter[1]['maxLength']),
          ),
        }),
    431: describeError(
      'The request line and headers are too large, or there are too many headers',
      headersTooLarge(),
    ),
    500: describeError('Internal error', internalError()),
    503: describeError(
      'The service cannot answer now; the same request may succeed later',
      databaseUnavailable('database_unreachable'),
      {
        'Retry-After': {
          type: 'integer',
          description: 'Seconds to wait before trying again',
        },
      },
    ),
    // Not 4XX and 5XX, for which some client generators emit code that does not compile.
    default: describeError('Any other error', new ApiError(400, 'The request is invalid.')),
  }
}

/** Describes an error response, with the body of `example` as its example. */
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

/** Returns the schema as callers see it: with an int64 in the path as an integer, which validation treats as text. */
function publishedSchema(schema: FastifySchema): FastifySchema {
  const responses = Object.entries(Object(schema.response))
  return {
    ...schema,
    params: publishedParameters(schema.params),
    response: Object.fromEntries(
      responses.map(([status, response]) => [status, publishedResponse(response)]),
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
 * Adds the header that all responses have, and moves the example to where @fastify/swagger keeps it: it drops the siblings
 * of a `$ref`.
 */
function publishedResponse(response: unknown): unknown {
  const { description, headers, examples, ...schema } = Object(response)
  const described = { description, headers: { ...headers, 'X-Request-Id': requestIdHeader } }
  if (examples === undefined) return { ...schema, ...described }
  return { ...described, content: { 'application/json': { schema, example: examples[0] } } }
}

const requestIdHeader = {
  type: 'string',
  description: 'Identifies the request in the log of the service',
} satisfies SchemaOptions
