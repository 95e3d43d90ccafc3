import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { Type } from '@sinclair/typebox'
import { ApiError, ErrorBody } from '../contract/api-error.ts'
import { Reference } from '../contract/schema-types.ts'
import { hasReason } from '../database/statement-error.ts'
import type { RequestMetrics } from '../metrics/request-metrics.ts'
import { entryTag, parseCondition } from './entry/condition.ts'
import {
  InventoryItem,
  InventoryUpdate,
  ListConditions,
  PetPath,
  PetStatus,
  UpdateConditions,
} from './entry/schemas.ts'
import { inventoryList } from './list/cached-list.ts'
import { ActiveDownloads } from './list/delivery/active-downloads.ts'
import { sendList } from './list/delivery/response.ts'
import type { ListReader } from './list/reads/reader.ts'
import { type BatchTracer, UpdateQueue, type UpdateTimes } from './updates/queue.ts'
import type { UpdateRepository } from './updates/repository.ts'

export interface InventoryOptions {
  readonly reader: ListReader
  readonly repository: UpdateRepository
  readonly metrics: RequestMetrics
  /** Absent if tracing is off. */
  readonly tracer?: BatchTracer | undefined
  readonly updateTimes: UpdateTimes
}

const listTag = {
  type: 'string',
  description: 'Identifies this version of the list; send it in If-None-Match',
}

const entryTagHeader = { type: 'string', description: 'The entity tag of the entry, such as "20-available"' }

/** Registers the two operations of the API. The scope that they are registered in authenticates the requests. */
export const inventoryRoutes: FastifyPluginAsyncTypebox<InventoryOptions> = async (
  app,
  { reader, repository, metrics, tracer, updateTimes },
) => {
  const downloads = new ActiveDownloads()
  const list = inventoryList(reader, downloads, metrics, app.log)
  const updates = new UpdateQueue(repository, metrics, tracer, updateTimes)

  for (const schema of [PetStatus, InventoryItem, InventoryUpdate]) app.addSchema(schema)

  // The HEAD that Fastify would add sends `Content-Length: 0` with a 304, where it is the size of the 200 (RFC 9110, section 8.6).
  app.head('/inventory', { schema: { hide: true } }, async (request, reply) =>
    sendList(await list(), downloads, request, reply),
  )
  app.get(
    '/inventory',
    {
      schema: {
        operationId: 'listInventory',
        summary: 'List inventory',
        description: 'Returns current stock levels for all pets in the store, in ascending order of petId.',
        tags: ['Inventory'],
        headers: ListConditions,
        response: {
          200: Type.Array(Reference(InventoryItem), {
            description: 'The stock levels',
            examples: [[InventoryItem['example'], { petId: 2, quantity: 0, status: 'sold' }]],
            headers: {
              ETag: listTag,
              'Content-Encoding': {
                type: 'string',
                description:
                  'The content coding, chosen by Accept-Encoding; absent if the list is not compressed',
              },
            },
          }),
          304: Type.Null({
            description: 'The list still has the ETag in If-None-Match',
            headers: { ETag: listTag },
          }),
          412: Reference(ErrorBody, {
            description: 'The list has none of the ETags in If-Match',
            headers: { ETag: listTag },
          }),
        },
      },
    },
    async (request, reply) => sendList(await list(), downloads, request, reply),
  )

  app.patch(
    '/inventory/:petId',
    {
      schema: {
        operationId: 'updateInventory',
        summary: 'Update stock level',
        description:
          'Sets the stock quantity of one pet; its status does not change. Unknown fields are ignored.\n\n' +
          'If no connection could be opened, and after a 429 or a 503 with the code `nothing_changed`, the update was not made: ' +
          'it is always safe to retry. After a timeout, a lost connection or any other 500, 502, 503 or 504, it may have been ' +
          'made. If you are the only writer of the pet, retry it. If others write, retry it only with `If-Match`, or you may ' +
          'overwrite a newer value. If you add or subtract, do not retry, or your change may be made twice.\n\n' +
          'Experimental: the request shape may change before it becomes stable.',
        'x-stability': 'experimental',
        tags: ['Inventory'],
        params: PetPath,
        headers: UpdateConditions,
        body: Reference(InventoryUpdate),
        response: {
          200: Reference(InventoryItem, {
            description: 'The updated entry',
            examples: [InventoryItem['example']],
            headers: { ETag: entryTagHeader },
          }),
          404: Reference(ErrorBody, { description: 'No entry exists for this petId' }),
          412: Reference(ErrorBody, {
            description: `The entry's tag is "14-available", so the precondition failed. Nothing was changed`,
            headers: { ETag: entryTagHeader },
          }),
        },
      },
    },
    async ({ params, headers, body, log, apiKey, id }, reply) => {
      const condition = parseCondition(headers)
      const caller = { key: apiKey, requestId: id }
      const item = await updates
        .set({ petId: BigInt(params.petId), quantity: body.quantity, condition, caller })
        .catch((error: unknown) => {
          if (!hasReason(error, 'rule')) throw error
          log.info({ err: error.cause }, 'a constraint or trigger in the database rejected the quantity')
          throw new ApiError(400, 'The database rejects this quantity.')
        })
      if (item === undefined) throw new ApiError(404, `No inventory entry exists for petId ${params.petId}.`)
      // A proxy that compresses a response makes its ETag weak, and weak tags never match If-Match.
      reply.header('cache-control', 'no-transform').header('etag', entryTag(item))
      return item
    },
  )
}
