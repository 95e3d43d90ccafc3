import type { SchemaOptions } from '@sinclair/typebox'
import type { FastifySchemaValidationError, FastifyServerOptions } from 'fastify'
import type { SchemaErrorDataVar } from 'fastify/types/schema.js'
import { ApiError } from '../contract/api-error.ts'
import { INT64_MAX, INT64_MIN, isInt64Text } from '../contract/int64.ts'

declare module 'fastify/types/schema.js' {
  interface FastifySchemaValidationError {
    /** The violated schema, which the option `verbose` adds. */
    readonly parentSchema?: SchemaOptions
  }
}

/**
 * Validation never converts a value: Fastify's defaults convert null to 0 and "5" to 5, so the service would store values that no client
 * sent. The format `int64-text` is for path parameters; the OpenAPI document shows it as an integer.
 */
export const ajvOptions: NonNullable<FastifyServerOptions['ajv']> = {
  customOptions: {
    coerceTypes: false,
    removeAdditional: false,
    // Adds the violated schema to the error, so that the message can state the bounds.
    verbose: true,
    // An annotation of OpenAPI that JSON Schema lacks. OpenAPI 3.0 does not support `examples` here.
    keywords: ['example'],
    formats: { 'int64-text': { type: 'string', validate: isInt64Text } },
  },
}

/** Creates the response to the first error: what is wrong, and what is accepted. */
export function validationError(errors: FastifySchemaValidationError[], part: SchemaErrorDataVar): ApiError {
  const [error] = errors
  const schema = error?.parentSchema
  const field = error?.instancePath.slice(1) || 'The body'
  const place = part === 'params' ? `${field} in the path` : field
  if (error?.keyword === 'maxLength')
    return new ApiError(414, `${place} is too long. The maximum is ${error.params['limit']} characters.`)
  if (error?.keyword === 'required') {
    const missing = String(error.params['missingProperty'])
    return new ApiError(
      400,
      `The body must have the field ${missing}: ${expected(schema?.['properties'][missing])}.`,
    )
  }
  return new ApiError(400, `${place} must be ${expected(schema)}.`)
}

/** Describes what a schema accepts, in words that follow "must be". */
function expected({ type, format, minimum, maximum }: SchemaOptions = {}): string {
  if (format === 'int64-text') {
    return `an integer from ${INT64_MIN} to ${INT64_MAX} in plain decimal, without a plus sign or leading zeros`
  }
  if (type === 'integer') return `an integer from ${minimum} to ${maximum}, as a JSON number`
  return `a JSON ${type}`
}
