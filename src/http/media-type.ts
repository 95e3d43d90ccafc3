import type { IncomingHttpHeaders } from 'node:http'
import { ApiError } from '../errors.ts'

/** The most characters of a header that an error repeats. */
const MAX_QUOTED = 100

/** 415 for a body that is not JSON in UTF-8. Names what the request says of its body. */
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
  )
}

function shorten(value: string): string {
  return value.length <= MAX_QUOTED ? value : `${value.slice(0, MAX_QUOTED)}…`
}
