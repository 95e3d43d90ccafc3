import { type IncomingMessage, METHODS, STATUS_CODES } from 'node:http'
import { ApiError } from '../contract/api-error.ts'

const methods = new Set(METHODS)

/** Whether a request is of HTTP/1. Node's parser also accepts those of RTSP and of HTTP/2.0. */
export function isHttp({ method = '', httpVersionMajor }: IncomingMessage): boolean {
  return methods.has(method) && httpVersionMajor === 1
}

/** Creates the error for data that no handler can answer, by the code of the error of Node's server. */
export function refusalOf(code: string): ApiError {
  switch (code) {
    case 'HPE_HEADER_OVERFLOW':
      return new ApiError(431, 'The request line and headers are too large. The maximum is 16384 bytes.')
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
