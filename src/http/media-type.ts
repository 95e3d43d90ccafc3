import type { IncomingHttpHeaders } from 'node:http'
import { parse } from 'content-type'
import { ApiError } from '../contract/errors.ts'

/** Maximum characters of a header value that an error message quotes. */
const MAX_QUOTED_LENGTH = 100

const JSON_TYPE = 'application/json'

/** Whether a Content-Type is `application/json` in UTF-8, with any other parameters. */
export function isJson(contentType: string): boolean {
  if (contentType === JSON_TYPE) return true
  const { type, parameters } = parse(contentType)
  return type === JSON_TYPE && /^utf-?8$/i.test(parameters['charset'] ?? 'utf-8')
}

/** Whether the body has a content coding, such as gzip (RFC 9110, section 8.4). */
export function hasContentCoding(headers: IncomingHttpHeaders): boolean {
  const codings = headers['content-encoding']?.split(',') ?? []
  return !codings.every((coding) => /^(identity)?$/i.test(coding.trim()))
}

/**
 * Creates the 415 for a body that is not JSON in UTF-8. The message quotes the headers of the request. A response header
 * names the accepted media type or, if the media type is right, the accepted content coding (RFC 5789, section 2.2;
 * RFC 9110, section 12.5.3).
 */
export function unsupportedMediaType(headers: IncomingHttpHeaders): ApiError {
  const type = headers['content-type']
  const coding = headers['content-encoding']
  const sent = [
    type === undefined ? 'no Content-Type' : `Content-Type: ${truncate(type)}`,
    ...(coding === undefined ? [] : [`Content-Encoding: ${truncate(coding)}`]),
  ]
  return new ApiError(
    415,
    `The body must be application/json in UTF-8, without a content coding. The request has ${sent.join(' and ')}.`,
    type !== undefined && isJson(type) && hasContentCoding(headers)
      ? { 'accept-encoding': 'identity' }
      : { 'accept-patch': JSON_TYPE },
  )
}

function truncate(value: string): string {
  return value.length <= MAX_QUOTED_LENGTH ? value : `${value.slice(0, MAX_QUOTED_LENGTH)}…`
}
