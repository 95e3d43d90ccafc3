import { Readable } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import type { FastifyReply, FastifyRequest } from 'fastify'
import Negotiator from 'negotiator'
import { ApiError } from '../../../contract/api-error.ts'
import { entityTags, hasCurrent, includesTag } from '../../../contract/entity-tag.ts'
import type { Encoding, SerializedList } from '../serialized/serialized-list.ts'
import type { ActiveDownloads } from './active-downloads.ts'

/** The content codings of a list, in order of preference. */
const encodings: readonly Encoding[] = ['gzip', 'identity']

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
  const encoding = negotiate(request)
  // Conditions are checked before the list is compressed.
  const currentTag = list.makeTag(encoding)
  if (match !== undefined && !includesTag(match, currentTag))
    throw new ApiError(412, 'The list has none of the entity tags in If-Match.', {
      headers: { etag: currentTag },
    })
  // Only the client itself may cache the list, and it must revalidate it before each use.
  reply.headers({ 'cache-control': 'private, no-cache', vary: 'Accept-Encoding', etag: currentTag })
  if (hasCurrent(headers, currentTag)) return reply.code(304).send()
  const { buffers, size } = await list.encode(encoding)
  reply.type('application/json; charset=utf-8')
  if (encoding !== 'identity') reply.header('content-encoding', encoding)
  downloads.add(list, reply.raw)
  const [only, ...others] = buffers
  if (others.length === 0) return reply.send(only)
  return reply.header('content-length', size).send(Readable.from(oneByOne(buffers)))
}

/**
 * Negotiates the content coding by the weights in `Accept-Encoding`. Without the header, or if it accepts no coding of a list, the list
 * is not compressed (RFC 9110, section 12.5.3).
 */
function negotiate({ headers }: FastifyRequest): Encoding {
  if (headers['accept-encoding'] === undefined) return 'identity'
  const [best] = new Negotiator({ headers }).encodings([...encodings])
  return encodings.find((encoding) => encoding === best) ?? 'identity'
}

/**
 * Yields each buffer in another event-loop iteration. Otherwise, all other requests would wait while a client that reads as fast as
 * this process writes gets the whole list.
 */
async function* oneByOne(buffers: readonly Buffer[]): AsyncGenerator<Buffer> {
  for (const buffer of buffers) {
    yield buffer
    await setImmediate()
  }
}
