import { type IncomingMessage, METHODS, STATUS_CODES } from 'node:http'
import { ApiError } from '../../contract/errors.ts'

/** Any other method or version belongs to another protocol, such as RTSP or HTTP/2. CONNECT has an event of its own. */
const methods = new Set(METHODS)
const versions = ['1.1', '1.0']

/** Whether a message that Node's parser accepts is an HTTP/1.1 or HTTP/1.0 request. */
export function isHttp({ method = '', httpVersion }: IncomingMessage): boolean {
  return methods.has(method) && versions.includes(httpVersion)
}

/** Creates the error for data that Node's HTTP parser rejects with `code`, or for a request that is not complete in time. */
export function parserError(code: string): ApiError {
  switch (code) {
    case 'HPE_HEADER_OVERFLOW':
      return headersTooLarge()
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return requestTimeout()
    default:
      return notHttp()
  }
}

/** Creates the 408 for a request that is incomplete when the request timeout expires. */
export function requestTimeout(): ApiError {
  return new ApiError(408, 'The request did not arrive in time.')
}

/** Creates the 431 for a request line and headers that are larger than Node's limit. */
export function headersTooLarge(): ApiError {
  return new ApiError(431, 'The request line and headers are too large. The maximum is 16384 bytes.')
}

/** Creates the 400 for data that is not an HTTP/1.1 or HTTP/1.0 message. */
export function notHttp(): ApiError {
  return new ApiError(
    400,
    'The request is not valid HTTP: check that its path is percent-encoded, and its headers and the length of its body.',
  )
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
