import { Readable } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { ApiError } from '../../../contract/api-error.ts'
import { entityTags, hasCurrent, includesTag } from '../../../contract/entity-tag.ts'
import { encodings, type SerializedList } from '../serialized/serialized-list.ts'
import type { ActiveDownloads } from './active-downloads.ts'
import { preferredCoding } from './content-coding.ts'

/**
 * Responds with the list in the content coding that the client prefers, or with 304 if the client already has it (RFC 9110,
 * sections 12.5.3 and 13.1.2).
 *
 * @throws {ApiError} 412 if the list does not match `If-Match` (section 13.1.1), and what `entityTags` throws
 */
export async function sendList(
  list: SerializedList,
  downloads: ActiveDownloads,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const { headers } = request
  const match = entityTags(headers, 'If-Match')
  const encoding = preferredCoding(headers, encodings)
  // Conditions are checked before the list is compressed.
  const currentTag = list.etagOf(encoding)
  if (match !== undefined && !includesTag(match, currentTag))
    throw new ApiError(412, 'The list has none of the entity tags in If-Match.', {
      headers: { etag: currentTag },
    })
  // Only the client itself may cache the list, and it must revalidate it before each use.
  reply.headers({ 'cache-control': 'private, no-cache', vary: 'Accept-Encoding', etag: currentTag })
  if (hasCurrent(headers, currentTag)) return reply.code(304).send()
  const { chunks, size } = await list.encoded(encoding)
  reply.type('application/json; charset=utf-8')
  if (encoding !== 'identity') reply.header('content-encoding', encoding)
  downloads.add(list, reply.raw)
  const [only, ...others] = chunks
  if (others.length === 0) return reply.send(only)
  return reply.header('content-length', size).send(Readable.from(oneByOne(chunks)))
}

/**
 * Yields each chunk in another event-loop iteration. Otherwise, all other requests would wait while a client that reads as fast as
 * this process writes gets the whole list.
 */
async function* oneByOne(chunks: readonly Buffer[]): AsyncGenerator<Buffer> {
  for (const chunk of chunks) {
    yield chunk
    await setImmediate()
  }
}
