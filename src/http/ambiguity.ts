import type { IncomingMessage } from 'node:http'
import { ApiError } from '../contract/api-error.ts'
import { authorityOf, isAuthority, isPercentEncoded } from '../contract/request-target.ts'
import { MAX_HEADERS } from './http-server.ts'

/**
 * Returns the error for a request that Node's parser accepts, but whose end, host or target a proxy in front may have read in another
 * way. What follows it on its connection could be a smuggled request.
 */
export function ambiguityOf(request: IncomingMessage, target: string): ApiError | undefined {
  const { headers, httpVersion, rawHeaders } = request
  if (rawHeaders.length / 2 > MAX_HEADERS)
    return new ApiError(431, `The request has too many headers. The maximum is ${MAX_HEADERS}.`)
  // RFC 9112, section 6.
  const coding = headers['transfer-encoding']
  if (coding !== undefined && (coding.toLowerCase() !== 'chunked' || httpVersion === '1.0'))
    return new ApiError(400, 'The only supported transfer coding is chunked, in HTTP/1.1.')
  // RFC 9112, section 3.2.
  const { host } = headers
  if (host === undefined ? httpVersion !== '1.0' : host !== '' && !isAuthority(host))
    return new ApiError(
      400,
      'The request must have one Host header: a host name or an IP address, with or without a port.',
    )
  // What the router gets as it is has been checked.
  if (request.url === target || isUnambiguous(target)) return undefined
  return new ApiError(
    400,
    'The path must be percent-encoded UTF-8, in which a % itself is %25 and a # is %23. A URL in the request line must have a host name or an IP address, with or without a port, and no user name.',
  )
}

/**
 * Returns what the router gets of a request target. It would answer an invalid one before any hook runs, and read an absolute URL as
 * browsers do: resolve dots in the path, and refuse hosts such as `a:99999`.
 */
export function routedTarget(target: string): string {
  return isUnambiguous(target) ? target.replace(/^https?:\/\/[^/?]*\/?/i, '/') : '/'
}

/** Checks the request target, except for what is a 404 (RFC 9112, section 3.2). */
function isUnambiguous(target: string): boolean {
  const authority = authorityOf(target)
  const hasHost = authority === undefined || isAuthority(authority)
  return hasHost && isPercentEncoded(target) && !target.includes('#')
}
