import type { FastifySchemaValidationError, FastifyServerOptions } from 'fastify'
import type { SchemaErrorDataVar } from 'fastify/types/schema.js'
import { ApiError } from '../contract/errors.ts'
import { INT64_MAX, INT64_MIN, isInt64Text } from '../contract/int64.ts'

/**
 * Validation takes a value as it was sent or refuses it. Fastify's defaults would make 0 of null, 5 of "5" and
 * remove members, and so store what nobody sent.
 *
 * The format `int64-text` is a string that holds an int64: what a path parameter is before it is known to be a
 * number. The OpenAPI document shows it as the integer that callers know.
 */
export const ajvOptions: NonNullable<FastifyServerOptions['ajv']> = {
  customOptions: {
    coerceTypes: false,
    removeAdditional: false,
    useDefaults: false,
    allErrors: false,
    // Puts the schema that was broken into the error, for its bounds to be told.
    verbose: true,
    // OpenAPI's annotation, which JSON Schema does not know. `examples` would be none in OpenAPI 3.0.
    keywords: ['example'],
    formats: { 'int64-text': { type: 'string', validate: isInt64Text } },
  },
}

/** The answer to the first fault that validation found: what is wrong, and what would be right. */
export function describeFault(faults: FastifySchemaValidationError[], part: SchemaErrorDataVar): ApiError {
  const [fault] = faults
  const schema = fault !== undefined && 'parentSchema' in fault ? fault.parentSchema : undefined
  const field = fault?.instancePath.slice(1) ?? ''
  if (part === 'params') {
    if (fault?.keyword === 'maxLength') return new ApiError(414, `${field} in the path is too long.`)
    return new ApiError(400, `${field} in the path must be ${expected(schema)}.`)
  }
  if (fault?.keyword === 'required') {
    const missing = String(fault.params['missingProperty'])
    return new ApiError(400, `The body must have the field ${missing}: ${expected(member(schema, missing))}.`)
  }
  return new ApiError(400, `${field === '' ? 'The body' : field} must be ${expected(schema)}.`)
}

/** What a schema asks for, in words that follow "must be". */
function expected(schema: unknown): string {
  const { type, format, minimum, maximum } = isRecord(schema) ? schema : {}
  if (format === 'int64-text') {
    return `an integer from ${INT64_MIN} to ${INT64_MAX} in plain decimal, without a plus sign or leading zeros`
  }
  if (type === 'integer') return `an integer from ${minimum} to ${maximum}, as a JSON number`
  return `a JSON ${type}`
}

function member(schema: unknown, name: string): unknown {
  const properties = isRecord(schema) ? schema['properties'] : undefined
  return isRecord(properties) ? properties[name] : undefined
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null
}
