import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { Type } from '@sinclair/typebox'
import { isRuleViolation } from '../database/failures.ts'
import { ApiError, ErrorBody } from '../errors.ts'
import { Reference } from '../schema-types.ts'
import { inventoryList } from './list.ts'
import { Readers } from './readers.ts'
import type { InventoryRepository } from './repository.ts'
import { InventoryItem, InventoryUpdate, PetPath, PetStatus } from './schemas.ts'
import { sendList } from './send-list.ts'
import type { InventoryStatistics } from './statistics.ts'
import { type BatchTracer, UpdateQueue } from './update-queue.ts'

export interface InventoryOptions {
  readonly repository: InventoryRepository
  readonly statistics: InventoryStatistics
  /** Absent where nothing is traced. */
  readonly tracer?: BatchTracer | undefined
}

const listTag = { type: 'string', description: 'Identifies this state of the list; for If-None-Match' }

/** The two operations of the interface. They are guarded by the scope that they are registered in. */
export const inventoryRoutes: FastifyPluginAsyncTypebox<InventoryOptions> = async (
  app,
  { repository, statistics, tracer },
) => {
  const readers = new Readers()
  const list = inventoryList(repository, readers, statistics, app.log)
  const updates = new UpdateQueue(repository, statistics, tracer)

  for (const schema of [PetStatus, InventoryItem, InventoryUpdate]) app.addSchema(schema)

  app.get(
    '/inventory',
    {
      schema: {
        operationId: 'listInventory',
        summary: 'List inventory',
        description: 'Returns current stock levels for all pets in the store, in ascending order of petId.',
        tags: ['Inventory'],
        requestHeaders: {
          'If-None-Match': {
            type: 'string',
            description:
              'The ETag of a list, or several; if the list is still one of them, the answer is 304',
          },
        },
        response: {
          200: Type.Array(Reference(InventoryItem), {
            description: 'The stock levels',
            examples: [[InventoryItem['example'], { petId: 2, quantity: 0, status: 'sold' }]],
            headers: {
              ETag: listTag,
              'Content-Encoding': {
                type: 'string',
                description: 'The content coding, chosen from Accept-Encoding; absent if there is none',
              },
            },
          }),
          304: Type.Null({
            description: 'The list has not changed since the one that If-None-Match names',
            headers: { ETag: listTag },
          }),
        },
      },
    },
    async (request, reply) => sendList(await list(), readers, request, reply),
  )

  app.patch(
    '/inventory/:petId',
    {
      schema: {
        operationId: 'updateInventory',
        summary: 'Update stock level',
        description:
          'Sets the stock quantity of one pet; its status stays as it is. Repeating a request does no harm.\n\n' +
          'Experimental: the request shape may change before it becomes stable. Unknown fields are ignored.',
        'x-stability': 'experimental',
        tags: ['Inventory'],
        params: PetPath,
        body: Reference(InventoryUpdate),
        response: {
          200: Reference(InventoryItem, {
            description: 'The updated entry',
            examples: [InventoryItem['example']],
          }),
          404: Reference(ErrorBody, {
            description: 'No entry exists for this petId',
            examples: [noEntry('6').body],
          }),
        },
      },
    },
    async (request) => {
      const item = await updates
        .set(BigInt(request.params.petId), request.body.quantity)
        .catch((error: unknown) => {
          if (!isRuleViolation(error)) throw error
          request.log.info({ err: error }, 'a rule in the database refused the quantity')
          throw new ApiError(400, 'A rule of this store does not allow the quantity.')
        })
      if (item === undefined) throw noEntry(request.params.petId)
      return item
    },
  )
}

function noEntry(petId: string): ApiError {
  return new ApiError(404, `No inventory entry exists for petId ${petId}.`)
}
