import type { FastifyInstance, FastifyRequest } from 'fastify'
import { parse } from 'lossless-json'
import { ApiError } from '../errors.ts'
import { readNumber } from '../integers.ts'
import { unsupportedMediaType } from './media-type.ts'

/** The most bytes that a request body may have. The one body of the interface needs about 30. */
export const BODY_LIMIT = 4096

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/**
 * Makes `application/json` in UTF-8 the only body that is read (RFC 8259), in place of the framework's parsers:
 * those take text as well, replace broken UTF-8, let the last of two members of one name win, and round numbers.
 */
export function readJsonBodies(app: FastifyInstance): void {
  app.removeAllContentTypeParsers()
  app.addContentTypeParser(
    'application/json',
    { parseAs: 'buffer' },
    async (request: FastifyRequest, body: Buffer) => {
      const charset = /;\s*charset\s*=\s*"?([^\s;"]+)/i.exec(request.headers['content-type'] ?? '')?.[1]
      const coding = request.headers['content-encoding'] ?? 'identity'
      if ((charset !== undefined && !/^utf-?8$/i.test(charset)) || coding.toLowerCase() !== 'identity') {
        throw unsupportedMediaType(request.headers)
      }
      if (body.length === 0) throw new ApiError(400, 'The body is empty; it must be a JSON object.')
      try {
        return parse(utf8.decode(body), undefined, readNumber)
      } catch {
        throw new ApiError(
          400,
          'The body is not valid JSON in UTF-8, without a byte order mark and with no member given two values.',
        )
      }
    },
  )
}
