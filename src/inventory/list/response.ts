import type { IncomingHttpHeaders } from 'node:http'
import { Readable } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { acceptedCodings, preferredCoding } from '../../contract/content-coding.ts'
import { matches } from '../../contract/entity-tag.ts'
import { ApiError } from '../../contract/errors.ts'
import { meetsIfMatch } from '../condition.ts'
import type { ActiveDownloads } from './active-downloads.ts'
import { type Encoding, encodings } from './codings.ts'
import type { Snapshot } from './snapshot.ts'

/**
 * Responds with the list in the content coding that the client prefers, or with 304 if the client already has the same list
 * in a coding that it accepts (RFC 9110, sections 12.5.3 and 13.1.2).
 *
 * @throws {ApiError} 412 if the list does not match `If-Match` (section 13.1.1), 400 if that header is malformed
 */
export async function sendList(
  snapshot: Snapshot,
  downloads: ActiveDownloads,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const { headers } = request
  const known = knownEncoding(headers, snapshot)
  const preferred = preferredCoding(headers, snapshot.encodings)
  // Conditions are checked before the list is compressed.
  const currentTag = snapshot.etagOf(known ?? preferred)
  if (!meetsIfMatch(headers, currentTag)) throw listNotMatched()
  // Only the client itself may cache the list, and it must revalidate it before each use.
  reply.header('cache-control', 'private, no-cache')
  reply.header('vary', 'Accept-Encoding')
  if (matches(headers['if-none-match'], currentTag)) return reply.header('etag', currentTag).code(304).send()
  const encoding = known !== undefined && snapshot.encodings.includes(known) ? known : preferred
  const { chunks, size, etag } = encoding === 'identity' ? snapshot : await snapshot.encoded(encoding)
  reply.header('etag', etag)
  reply.type('application/json; charset=utf-8')
  if (encoding !== 'identity') reply.header('content-encoding', encoding)
  downloads.add(snapshot, reply.raw)
  const [only, ...others] = chunks
  if (others.length === 0) return reply.send(only)
  return reply
    .header('content-length', size)
    .send(Readable.from(inShares(chunks, () => downloads.count(snapshot))))
}

/**
 * Returns the accepted content coding in which the client already has the list, as its conditions say. Another process, or
 * this one earlier, may have preferred it; undefined if there is none.
 */
function knownEncoding(headers: IncomingHttpHeaders, snapshot: Snapshot): Encoding | undefined {
  const tags = headers['if-none-match'] ?? headers['if-match']
  if (tags === undefined) return undefined
  return acceptedCodings(headers, encodings).find((encoding) => matches(tags, snapshot.etagOf(encoding)))
}

/** Returns the error for a list that does not match `If-Match` (412). */
export function listNotMatched(): ApiError {
  return new ApiError(412, 'The list has none of the entity tags in If-Match.')
}

/** Maximum bytes of a snapshot that all its downloads together write in one event-loop iteration. */
const MAX_BYTES_PER_ITERATION = 1_048_576

/** Minimum share of a single download in these bytes. */
const MIN_SHARE_BYTES = 65_536

/**
 * Yields the chunks in shares, at most one per event-loop iteration. Otherwise a client that reads as fast as this process
 * writes would get the whole list in one iteration, while all other requests wait. Concurrent downloads divide the bytes of
 * an iteration among them, so that more downloads do not make it longer.
 */
async function* inShares(chunks: readonly Buffer[], downloads: () => number): AsyncGenerator<Buffer> {
  let written = 0
  for (const chunk of chunks) {
    for (let at = 0, end = 0; at < chunk.length; at = end) {
      const share = Math.max(MIN_SHARE_BYTES, Math.ceil(MAX_BYTES_PER_ITERATION / Math.max(1, downloads())))
      end = Math.min(chunk.length, at + share)
      yield chunk.subarray(at, end)
      written += end - at
      if (written < share) continue
      written = 0
      await setImmediate()
    }
  }
}
