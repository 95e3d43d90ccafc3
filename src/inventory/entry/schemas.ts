import { type Static, Type } from '@sinclair/typebox'
import { Reference } from '../../contract/schema-types.ts'

/** Maximum quantity: the range of PostgreSQL's `integer`, and of an integer without a format in generated clients. */
export const MAX_QUANTITY = 2_147_483_647

export const petStatuses = ['available', 'pending', 'sold'] as const

/** An `enum`. A `Type.Union` would become an `anyOf` of single values, for each of which client generators make a type. */
export const PetStatus = Type.Unsafe<(typeof petStatuses)[number]>({
  $id: 'PetStatus',
  type: 'string',
  enum: petStatuses,
  description: 'Status of the pet',
})
export type PetStatus = Static<typeof PetStatus>

export const InventoryItem = Type.Object(
  {
    // A bigint, because a JavaScript number would round 9007199254740993 and identify another pet.
    petId: Type.Unsafe<bigint>({
      type: 'integer',
      format: 'int64',
      description:
        'Identifier of the animal this entry tracks. JSON.parse in JavaScript and jq 1.6 round it above 2^53.',
    }),
    quantity: Type.Integer({ minimum: 0, maximum: MAX_QUANTITY, description: 'Current stock count' }),
    status: Reference(PetStatus),
  },
  {
    $id: 'InventoryItem',
    description: 'The stock of one pet',
    example: { petId: 1, quantity: 20, status: 'available' },
  },
)
export type InventoryItem = Static<typeof InventoryItem>

/** Unknown fields are ignored, because the shape of this request is announced to change. */
export const InventoryUpdate = Type.Object(
  {
    quantity: Type.Integer({ minimum: 0, maximum: MAX_QUANTITY, description: 'The new stock count' }),
  },
  { $id: 'InventoryUpdate', description: 'The new stock of one pet', example: { quantity: 20 } },
)

/** Path parameters of an operation on one pet. The petId is validated as text, because a number would be rounded. */
export const PetPath = Type.Object({
  petId: Type.String({
    format: 'int64-text',
    maxLength: 100,
    description: 'Identifier of the pet whose stock is updated',
  }),
})

const optionalHeader = (description: string) => Type.Optional(Type.String({ description }))

/** Conditional request headers of a list (RFC 9110, section 13.1). */
export const ListConditions = Type.Object({
  'If-None-Match': optionalHeader(
    'The ETag of the list you got last. If the list has not changed, the response is a 304 without a body.',
  ),
  'If-Match': optionalHeader('The ETag of a list. If the list has changed, the response is a 412.'),
})

/** Conditional request headers of an update (RFC 9110, section 13.1). */
export const UpdateConditions = Type.Object({
  'If-Match': optionalHeader(
    'The quantity and status that the entry must have, such as `"12-available"`. If it has others, nothing is changed, and the response is a 412 with the current ones as its ETag: decide from them what to send.',
  ),
  'If-None-Match': optionalHeader(
    'The quantity and status that the entry must not have, such as `"0-available"`. If it has them, nothing is changed, and the response is a 412.',
  ),
})
