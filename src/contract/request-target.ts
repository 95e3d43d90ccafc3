/** A request target in absolute form (RFC 9112, section 3.2.2) with any scheme (RFC 3986, section 3.1), up to its path. */
const ABSOLUTE_FORM = /^[a-z][a-z\d+.-]*:\/\/([^/?#]*)/i

const AUTHORITY = /^(?:[\w.-]+|\[[\da-f:.]+\])(?::\d*)?$/i

/** Returns the authority of a request target in absolute form; undefined if it has another form. */
export function authorityOf(target: string): string | undefined {
  return ABSOLUTE_FORM.exec(target)?.[1]
}

/** Returns the path of a request target. Unlike the query and the authority, it should contain no secrets. */
export function pathOf(target: string): string {
  return target.replace(ABSOLUTE_FORM, '').replace(/\?.*/, '')
}

/**
 * Whether a text is a host name or an IP address, with or without a port. RFC 3986 also allows commas in a name, but Node and proxies join
 * several Host headers with them.
 */
export function isAuthority(text: string): boolean {
  return AUTHORITY.test(text)
}

/** Whether each `%` in the path of a request target begins an escape, and the escapes are UTF-8. */
export function isPercentEncoded(target: string): boolean {
  if (!target.includes('%')) return true
  try {
    decodeURIComponent(pathOf(target))
    return true
  } catch {
    return false
  }
}
