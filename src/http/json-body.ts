import type { IncomingHttpHeaders } from 'node:http'
import { parse as parseContentType } from 'content-type'
import fp from 'fastify-plugin'
import { parse } from 'lossless-json'
import { ApiError } from '../contract/api-error.ts'
import { readNumber } from '../contract/int64.ts'

/** Maximum size of a body. The only one of the interface takes about 30 bytes. */
export const MAX_BODY_BYTES = 4096

const JSON_TYPE = 'application/json'

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/**
 * Accepts only `application/json` in UTF-8 (RFC 8259), and replaces Fastify's parsers: those also accept text, replace
 * invalid UTF-8, keep the last of duplicate members and round numbers.
 */
export const jsonBodies = fp(
  async (app) => {
    app.removeAllContentTypeParsers()
    // Fastify sends what the parser throws.
    app.addContentTypeParser(JSON_TYPE, { parseAs: 'buffer' }, ({ headers }, body: Buffer, done) =>
      done(null, readJson(headers, body)),
    )
  },
  { name: 'json-bodies' },
)

/** @throws {ApiError} 415 or 400 */
function readJson(headers: IncomingHttpHeaders, body: Buffer): unknown {
  const { 'content-type': type = '' } = headers
  // The charset of JSON is UTF-8, whether it is named or not.
  const { charset = 'utf-8' } = type === JSON_TYPE ? {} : parseContentType(type).parameters
  if (!/^utf-?8$/i.test(charset)) throw unsupportedMediaType(headers)
  // RFC 9110, section 8.4.
  if (!/^(identity)?$/i.test(headers['content-encoding'] ?? ''))
    throw unsupportedMediaType(headers, { 'accept-encoding': 'identity' })
  try {
    return parse(utf8.decode(body), undefined, { parseNumber: readNumber })
  } catch {
    throw new ApiError(
      400,
      'The body must be a JSON object in UTF-8, without a byte order mark, and with one value for each member.',
    )
  }
}

/** Creates the 415 with a header that names the accepted media type (RFC 5789, section 2.2) or coding (RFC 9110, section 12.5.3). */
export function unsupportedMediaType(
  { 'content-type': type = 'none', 'content-encoding': coding = 'none' }: IncomingHttpHeaders,
  accepted: Record<string, string> = { 'accept-patch': JSON_TYPE },
): ApiError {
  return new ApiError(
    415,
    `The body must be application/json in UTF-8, without a content coding. Its Content-Type is ${type}, its Content-Encoding ${coding}.`,
    { headers: accepted },
  )
}
