import { STATUS_CODES } from 'node:http'
import { ApiError } from '../contract/api-error.ts'
import { headersTooLarge } from './ambiguity.ts'

/** Creates the error for data that no handler can answer, from the code of the error of Node's server. */
export function toRefusal(code: string): ApiError {
  switch (code) {
    case 'HPE_HEADER_OVERFLOW':
      return headersTooLarge()
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new ApiError(408, 'The request did not arrive in time.')
    default:
      return new ApiError(
        400,
        'The request is not valid HTTP: check its method, that its path is percent-encoded, its headers and the length of its body.',
      )
  }
}

/** Returns an error response as text, for a connection without a request that could be answered. */
export function formatRefusal({ status, headers, body }: ApiError, requestId: string): string {
  const json = JSON.stringify(body)
  const lines = Object.entries({
    ...headers,
    'content-type': 'application/json; charset=utf-8',
    'content-length': String(Buffer.byteLength(json)),
    'x-request-id': requestId,
    date: new Date().toUTCString(),
    connection: 'close',
  }).map(([name, value]) => `${name}: ${value}\r\n`)
  return `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('')}\r\n${json}`
}
