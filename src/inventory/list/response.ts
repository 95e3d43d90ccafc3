import { Readable } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { preferredCoding } from '../../contract/content-coding.ts'
import { matches } from '../../contract/entity-tag.ts'
import type { Readers } from './active-downloads.ts'
import type { Snapshot } from './snapshot.ts'

/**
 * Answers with the list: in the content coding that the caller prefers, or with 304 where it has the same list already
 * (RFC 9110, sections 12.5.3 and 13.1.2).
 */
export async function sendList(
  snapshot: Snapshot,
  readers: Readers,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const { headers } = request
  const encoding = preferredCoding(headers, snapshot.encodings)
  const { chunks, size, etag } = encoding === 'identity' ? snapshot : await snapshot.encoded(encoding)
  reply.header('etag', etag)
  // Kept by its caller alone, and never used without asking whether it is still right.
  reply.header('cache-control', 'private, no-cache')
  reply.header('vary', 'Accept-Encoding')
  if (matches(headers['if-none-match'], etag)) return reply.code(304).send()
  reply.type('application/json; charset=utf-8')
  if (encoding !== 'identity') reply.header('content-encoding', encoding)
  readers.add(snapshot, reply.raw)
  const [only, ...others] = chunks
  if (others.length === 0) return reply.send(only)
  return reply
    .header('content-length', size)
    .send(Readable.from(inTurns(chunks, () => readers.count(snapshot))))
}

/** How much of a list is written in one iteration of the event loop, in bytes: by all readers together, and at least. */
const BYTES_PER_ITERATION = 1_048_576
const LEAST_BYTES_PER_ITERATION = 65_536

/**
 * Hands out the chunks in parts, with an iteration of the event loop after so many bytes. Clients that read as fast as this
 * process writes would otherwise get the whole list in one iteration, and everybody else would wait for it. So that an
 * iteration is as short however many read at once, they share it.
 */
async function* inTurns(chunks: readonly Buffer[], readers: () => number): AsyncGenerator<Buffer> {
  let written = 0
  for (const chunk of chunks) {
    for (let at = 0, end = 0; at < chunk.length; at = end) {
      const share = Math.max(
        LEAST_BYTES_PER_ITERATION,
        Math.ceil(BYTES_PER_ITERATION / Math.max(1, readers())),
      )
      end = Math.min(chunk.length, at + share)
      yield chunk.subarray(at, end)
      written += end - at
      if (written < share) continue
      written = 0
      await setImmediate()
    }
  }
}
