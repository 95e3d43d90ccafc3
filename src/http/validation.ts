import type { FastifySchemaValidationError, FastifyServerOptions } from 'fastify'
import type { SchemaErrorDataVar } from 'fastify/types/schema.js'
import { ApiError } from '../contract/api-error.ts'
import { INT64_MAX, INT64_MIN, isInt64Text } from '../contract/int64.ts'

/**
 * Validation never converts a value: Fastify's defaults convert null to 0 and "5" to 5, so the service would store values that no client
 * sent. The format `int64-text` is for path parameters; the OpenAPI document shows it as an integer.
 */
export const ajvOptions: NonNullable<FastifyServerOptions['ajv']> = {
  customOptions: {
    coerceTypes: false,
    removeAdditional: false,
    // An annotation of OpenAPI that JSON Schema lacks. OpenAPI 3.0 does not support `examples` here.
    keywords: ['example'],
    formats: { 'int64-text': { type: 'string', validate: isInt64Text } },
  },
}

/** Creates the response to the first error, with what Ajv says is accepted. */
export function validationError(errors: FastifySchemaValidationError[], part: SchemaErrorDataVar): ApiError {
  const { instancePath = '', keyword, message, params } = errors[0] ?? {}
  const field = instancePath.slice(1) || 'The body'
  const place = part === 'params' ? `${field} in the path` : field
  if (keyword === 'maxLength')
    return new ApiError(414, `${place} is too long. The maximum is ${params?.['limit']} characters.`)
  if (keyword === 'format')
    return new ApiError(400, `${place} must be a plain decimal integer from ${INT64_MIN} to ${INT64_MAX}.`)
  return new ApiError(400, `${place} ${message}.`)
}
