import type { IncomingMessage } from 'node:http'
import { isIPv6 } from 'node:net'
import { ApiError, bearerChallenge } from '../contract/errors.ts'
import { authorityOf, pathOf } from '../contract/request-target.ts'
import { MAX_HEADERS } from './connections/http-server.ts'

/**
 * Returns the error for a request that Node's parser accepts, but that a proxy in front may have read in another way: its end,
 * its target, or a header that must be single. What follows it on its connection could be a smuggled request.
 */
export function ambiguityOf(request: IncomingMessage, target: string): ApiError | undefined {
  const { headers, httpVersion, rawHeaders } = request
  if (rawHeaders.length / 2 > MAX_HEADERS)
    return new ApiError(431, `The request has too many headers. The maximum is ${MAX_HEADERS}.`)
  // RFC 9112, section 6.
  const coding = headers['transfer-encoding']
  if (coding !== undefined && (coding.toLowerCase() !== 'chunked' || httpVersion === '1.0'))
    return new ApiError(400, 'The only supported transfer coding is chunked, in HTTP/1.1.')
  // RFC 9112, section 3.2. Node keeps the first of several Host headers and drops the others.
  const hosts = countOf('host', request)
  if (hosts > 1 || (hosts === 0 && httpVersion !== '1.0'))
    return new ApiError(400, 'The request must have exactly one Host header.')
  if (headers.host !== undefined && !isAuthority(headers.host))
    return new ApiError(400, 'The header Host must be a host name or an IP address, with or without a port.')
  // Node uses the first of these headers, but a proxy may have used the last (RFC 9110, section 5.3).
  if (countOf('authorization', request) > 1) {
    return new ApiError(
      400,
      'The request must not have more than one Authorization header.',
      bearerChallenge('invalid_request'),
    )
  }
  if (countOf('content-type', request) > 1)
    return new ApiError(400, 'The request must not have more than one Content-Type header.')
  return targetError(target)
}

/** Counts the headers of a name, which is in lower case. */
function countOf(name: string, { rawHeaders }: IncomingMessage): number {
  let count = 0
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const given = rawHeaders[index]
    if (given?.length === name.length && given.toLowerCase() === name) count++
  }
  return count
}

/** Checks the request target, except for what is a 404 (RFC 9112, section 3.2). */
export function targetError(target: string): ApiError | undefined {
  if (target.includes('#'))
    return new ApiError(400, 'The request target must not have a fragment. Encode # as %23.')
  if (!isPercentEncoded(target))
    return new ApiError(400, 'The path must be percent-encoded UTF-8. A % itself is %25.')
  const authority = authorityOf(target)
  // An http URL must have a host, unlike a Host header (RFC 9110, section 4.2.1).
  if (authority !== undefined && (/^(:|$)/.test(authority) || !isAuthority(authority))) {
    return new ApiError(
      400,
      'The URL in the request line must have a host name or an IP address, with or without a port, and no user name.',
    )
  }
  return undefined
}

/** Whether each `%` in the path of a request target begins an escape, and the escapes are UTF-8. */
function isPercentEncoded(target: string): boolean {
  if (!target.includes('%')) return true
  try {
    decodeURIComponent(pathOf(target))
    return true
  } catch {
    return false
  }
}

/**
 * Matches `uri-host [ ":" port ]` (RFC 3986, section 3.2.2), which may be empty. Rejects commas, which the grammar allows in
 * a name, because a proxy may combine two Host headers with a comma.
 */
const AUTHORITY =
  /^(?:(?:[\w.~!$&'()*+;=-]|%[0-9A-Fa-f]{2})*|\[(?:([0-9A-Fa-f:.]+)|v[0-9A-Fa-f]+\.[\w.~!$&'()*+,;=:-]+)\])(?::\d*)?$/

function isAuthority(text: string): boolean {
  const match = AUTHORITY.exec(text)
  return match !== null && (match[1] === undefined || isIPv6(match[1]))
}
