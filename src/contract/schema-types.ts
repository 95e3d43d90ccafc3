import { type SchemaOptions, type Static, type TSchema, type TUnsafe, Type } from '@sinclair/typebox'

/** A `$ref` to a schema that is registered with the app, with the static type of that schema. */
export function Reference<Schema extends TSchema & { $id?: string }>(
  schema: Schema,
  options: SchemaOptions = {},
): TUnsafe<Static<Schema>> {
  return Type.Unsafe<Static<Schema>>({ ...options, $ref: `${schema.$id}#` })
}
