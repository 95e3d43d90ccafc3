import swagger from '@fastify/swagger'
import { type SchemaOptions, type TSchema, TypeGuard } from '@sinclair/typebox'
import type { FastifyInstance, FastifySchema } from 'fastify'
import { ErrorBody } from '../errors.ts'
import { Reference } from '../schema-types.ts'
import { SECURITY_SCHEME } from './authentication.ts'

declare module 'fastify' {
  interface FastifySchema {
    /** How settled an operation is; absent where it is stable. */
    'x-stability'?: 'experimental' | 'beta'
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
        license: { name: 'MIT', identifier: 'MIT' },
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
function errorsOf({ params, body }: FastifySchema): Record<number, unknown> {
  return {
    400: error('The request is malformed, or a value in it is missing or invalid'),
    408: error('The request did not arrive in time'),
    ...(body === undefined ? {} : { 413: error('The body is too large') }),
    ...(params === undefined ? {} : { 414: error('The path is too long') }),
    ...(body === undefined ? {} : { 415: error('The body is not application/json in UTF-8') }),
    417: error('An expectation other than 100-continue'),
    431: error('The request line and headers are too large'),
    500: error('The service failed'),
    503: error('The service cannot answer now; the same request may succeed later', {
      'Retry-After': { type: 'integer', description: 'Seconds to wait before trying again' },
    }),
  }
}

function error(description: string, headers?: Record<string, SchemaOptions>): TSchema {
  return Reference(ErrorBody, { description, ...(headers === undefined ? {} : { headers }) })
}

function serversOf(publicUrls: readonly string[]): { url: string; description?: string }[] {
  if (publicUrls.length === 0) return [{ url: '/v1' }]
  const names = ['Production', 'Staging']
  return publicUrls.map((url, index) => ({ url, description: names[index] ?? `Environment ${index + 1}` }))
}

/** A schema as callers see it: an int64 in the path is an integer to them, not the text that validation starts from. */
function publishedSchema(schema: FastifySchema): FastifySchema {
  const { params } = schema
  if (!TypeGuard.IsObject(params)) return schema
  const properties = Object.entries(params.properties).map(([name, { format, maxLength, ...property }]) => [
    name,
    format === 'int64-text'
      ? { ...property, type: 'integer', format: 'int64' }
      : { ...property, format, maxLength },
  ])
  return { ...schema, params: { ...params, properties: Object.fromEntries(properties) } }
}
