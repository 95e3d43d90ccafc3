import { type SchemaOptions, type Static, type TSchema, type TUnsafe, Type } from '@sinclair/typebox'

/**
 * A string out of a fixed list, as one JSON Schema `enum`. `Type.Union` of literals would become an `anyOf`
 * of single values, which client generators turn into a type for each of them.
 */
export function StringEnum<const Values extends readonly string[]>(
  values: Values,
  options: SchemaOptions = {},
): TUnsafe<Values[number]> {
  return Type.Unsafe<Values[number]>({ ...options, type: 'string', enum: values })
}

/** A reference to a schema that the app knows by its `$id`, with the static type of that schema. */
export function Reference<Schema extends TSchema & { $id?: string }>(
  schema: Schema,
  options: SchemaOptions = {},
): TUnsafe<Static<Schema>> {
  return Type.Unsafe<Static<Schema>>({ ...options, $ref: `${schema.$id}#` })
}
