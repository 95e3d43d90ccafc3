import type { IncomingHttpHeaders } from 'node:http'
import { ApiError } from '../errors.ts'

/** The one media type that a body may have. */
export const MEDIA_TYPE = 'application/json'

/** The most characters of a header that an error repeats. */
const MAX_QUOTED = 100

/** 415 for a body that is not JSON in UTF-8. Names what was sent, and what is accepted (RFC 5789, section 2.2). */
export function unsupportedMediaType(headers: IncomingHttpHeaders): ApiError {
  const type = headers['content-type']
  const sent = type === undefined ? 'no Content-Type' : `Content-Type: ${shorten(type)}`
  return new ApiError(415, `The body must be ${MEDIA_TYPE} in UTF-8. The request has ${sent}.`, {
    'accept-patch': MEDIA_TYPE,
  })
}

/** 415 for a body with a content coding. Names the coding that was sent (RFC 9110, section 12.5.3). */
export function unsupportedCoding(headers: IncomingHttpHeaders): ApiError {
  const coding = shorten(headers['content-encoding'] ?? '')
  return new ApiError(
    415,
    `The body must not have a content coding. The request has Content-Encoding: ${coding}.`,
    { 'accept-encoding': 'identity' },
  )
}

function shorten(value: string): string {
  return value.length <= MAX_QUOTED ? value : `${value.slice(0, MAX_QUOTED)}…`
}
