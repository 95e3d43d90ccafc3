import { Readable } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { preferredCoding } from '../content-coding.ts'
import { matches } from '../entity-tag.ts'
import type { Readers } from './readers.ts'
import { encodings, type Snapshot } from './snapshot.ts'

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
  const encoding = preferredCoding(headers, encodings)
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

/** The smallest piece that is worth a turn of its own, in bytes. */
const SMALLEST_PIECE = 65_536

/**
 * Hands out the chunks in pieces, with a turn of the event loop after each of them. Clients that read as fast as this
 * process writes would otherwise get the whole list in one turn, and everybody else would wait for it. So that a turn
 * is as short however many read at once, they share it.
 */
async function* inTurns(chunks: readonly Buffer[], readers: () => number): AsyncGenerator<Buffer> {
  for (const chunk of chunks) {
    for (let at = 0, end = 0; at < chunk.length; at = end) {
      end = at + Math.max(SMALLEST_PIECE, Math.ceil(chunk.length / Math.max(1, readers())))
      yield chunk.subarray(at, end)
      await setImmediate()
    }
  }
}
