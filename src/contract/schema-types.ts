import { type SchemaOptions, type Static, type TSchema, type TUnsafe, Type } from '@sinclair/typebox'

/**
 * A JSON Schema `enum` of strings. A `Type.Union` of literals would become an `anyOf` of single values, for each of which
 * client generators make a type.
 */
export function StringEnum<const Values extends readonly string[]>(
  values: Values,
  options: SchemaOptions = {},
): TUnsafe<Values[number]> {
  return Type.Unsafe<Values[number]>({ ...options, type: 'string', enum: values })
}

/** A `$ref` to a schema that is registered with the app, with the static type of that schema. */
export function Reference<Schema extends TSchema & { $id?: string }>(
  schema: Schema,
  options: SchemaOptions = {},
): TUnsafe<Static<Schema>> {
  return Type.Unsafe<Static<Schema>>({ ...options, $ref: `${schema.$id}#` })
}
