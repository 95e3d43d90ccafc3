import type { IncomingHttpHeaders } from 'node:http'
import { parse } from 'content-type'
import { ApiError } from '../contract/errors.ts'

/** The most characters of a header that an error repeats. */
const MAX_QUOTED = 100

const JSON_TYPE = 'application/json'

/** True for `application/json` in UTF-8, whatever its other parameters. */
export function isJson(contentType: string): boolean {
  if (contentType === JSON_TYPE) return true
  const { type, parameters } = parse(contentType)
  return type === JSON_TYPE && /^utf-?8$/i.test(parameters['charset'] ?? 'utf-8')
}

/** True for a body that is compressed or coded otherwise (RFC 9110, section 8.4). */
export function hasContentCoding(headers: IncomingHttpHeaders): boolean {
  const codings = headers['content-encoding']?.split(',') ?? []
  return !codings.every((coding) => /^\s*(identity)?\s*$/i.test(coding))
}

/**
 * 415 for a body that is not JSON in UTF-8. Names what the request says of its body, and in a header what is accepted:
 * the media type, or, where that is right, the content coding (RFC 5789, section 2.2; RFC 9110, section 12.5.3).
 */
export function unsupportedMediaType(headers: IncomingHttpHeaders): ApiError {
  const type = headers['content-type']
  const coding = headers['content-encoding']
  const sent = [
    type === undefined ? 'no Content-Type' : `Content-Type: ${shorten(type)}`,
    ...(coding === undefined ? [] : [`Content-Encoding: ${shorten(coding)}`]),
  ]
  return new ApiError(
    415,
    `The body must be application/json in UTF-8, without a content coding. The request has ${sent.join(' and ')}.`,
    type !== undefined && isJson(type) && hasContentCoding(headers)
      ? { 'accept-encoding': 'identity' }
      : { 'accept-patch': JSON_TYPE },
  )
}

function shorten(value: string): string {
  return value.length <= MAX_QUOTED ? value : `${value.slice(0, MAX_QUOTED)}…`
}
