import { type IncomingMessage, METHODS, STATUS_CODES } from 'node:http'
import { ApiError } from '../../contract/errors.ts'

/** Any other method or version belongs to another protocol, such as RTSP or HTTP/2. CONNECT has an event of its own. */
const methods = new Set(METHODS)
const versions = ['1.1', '1.0']

/** Whether a message that Node's parser accepts is an HTTP/1.1 or HTTP/1.0 request. */
export function isHttp({ method = '', httpVersion }: IncomingMessage): boolean {
  return methods.has(method) && versions.includes(httpVersion)
}

/**
 * Creates the error for what no handler can answer. The reason is the code with which Node's HTTP parser rejects data or gives up
 * an incomplete request; or CONNECT; or anything else for another protocol.
 */
export function refusalOf(reason: string): ApiError {
  switch (reason) {
    case 'HPE_HEADER_OVERFLOW':
      return new ApiError(431, 'The request line and headers are too large. The maximum is 16384 bytes.')
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new ApiError(408, 'The request did not arrive in time.')
    case 'CONNECT':
      return new ApiError(405, 'CONNECT is not supported.', { allow: '' })
    default:
      return new ApiError(
        400,
        'The request is not valid HTTP: check that its path is percent-encoded, and its headers and the length of its body.',
      )
  }
}

/** Returns an error response as text, for a connection without a request that could be answered, which closes after it. */
export function errorMessage({ status, headers, body }: ApiError, requestId: string): string {
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
