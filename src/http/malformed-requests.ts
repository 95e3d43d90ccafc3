import { type IncomingMessage, STATUS_CODES } from 'node:http'
import { ApiError } from '../contract/api-error.ts'

/** Maximum headers of a request. The limit on their size does not bound their memory, about a hundred bytes for each. */
export const MAX_HEADERS = 256

/** The scheme, authority, path, query and fragment of a request target in origin or absolute form (RFC 9112, section 3.2). */
const TARGET = /^(?:([a-z][a-z\d+.-]*):\/\/([^/?#]*))?\/?([^?#]*)(\?[^#]*)?(#.*)?$/i

/**
 * A host name or an IP address, with or without a port. RFC 3986 also allows commas in a name, but Node and proxies join several Host
 * headers with them.
 */
const AUTHORITY = /^(?:[\w.-]+|\[[\da-f:.]+\])(?::\d*)?$/i

/** What the router gets of an invalid target, for which it would send a response of its own before any hook. */
const INVALID_TARGET = '/#'

/** Returns what the router gets of a request target. It would read an absolute URL as browsers do, and resolve dots in the path. */
export function toRoutedTarget({ url = '' }: IncomingMessage): string {
  const [, scheme = 'http', authority, path = '', query = '', fragment] = TARGET.exec(url) ?? []
  const hasHost = authority === undefined || AUTHORITY.test(authority)
  if (!hasHost || fragment !== undefined || !isPercentEncoded(path)) return INVALID_TARGET
  // With another scheme, there is nothing at the path.
  return /^https?$/i.test(scheme) ? `/${path}${query}` : `/${url}`
}

/** Returns the path of a request target. Unlike the query and the authority, it should contain no secrets. */
export function findPath(target: string): string {
  return target.replace(TARGET, '/$3')
}

/**
 * Returns the error for a request that Node's parser accepts, but whose end, host or target a proxy in front may have read in another
 * way. What follows it on its connection could be a smuggled request.
 */
export function findAmbiguity(request: IncomingMessage): ApiError | undefined {
  const { headers, httpVersion, rawHeaders, url } = request
  const { host, 'transfer-encoding': coding } = headers
  if (rawHeaders.length / 2 > MAX_HEADERS) return headersTooLarge()
  // RFC 9112, section 6.
  if (coding !== undefined && (coding.toLowerCase() !== 'chunked' || httpVersion === '1.0'))
    return new ApiError(400, 'The only supported transfer coding is chunked, in HTTP/1.1.')
  // RFC 9112, section 3.2.
  if (host === undefined ? httpVersion !== '1.0' : host !== '' && !AUTHORITY.test(host))
    return new ApiError(
      400,
      'The request must have one Host header: a host name or an IP address, with or without a port.',
    )
  if (url !== INVALID_TARGET) return undefined
  return new ApiError(
    400,
    'The path must be percent-encoded UTF-8, in which a % itself is %25 and a # is %23. A URL in the request line must have a host name or an IP address, with or without a port, and no user name.',
  )
}

/** Creates the 431. Node counts the bytes or the headers, depending on its version and on which limit a request exceeds first. */
function headersTooLarge(): ApiError {
  return new ApiError(
    431,
    `The request line and headers are too large, or too many. The maximum is 16384 bytes and ${MAX_HEADERS} headers.`,
  )
}

/** Whether each `%` in a path begins an escape, and the escapes are UTF-8. */
function isPercentEncoded(path: string): boolean {
  try {
    decodeURIComponent(path)
    return true
  } catch {
    return false
  }
}

/** Creates the error for data that is no request, from the code of the error of Node's server. */
export function toRefusal(code: string): ApiError {
  if (code === 'HPE_HEADER_OVERFLOW') return headersTooLarge()
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return new ApiError(408, 'The request did not arrive in time.')
  const parts = 'its method, its path, its headers and the length of its body'
  return new ApiError(400, `The request is not valid HTTP: check ${parts}.`)
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
