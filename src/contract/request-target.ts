/** A request target in absolute form (RFC 9112, section 3.2.2) with any scheme (RFC 3986, section 3.1), up to its path. */
const ABSOLUTE_FORM = /^[a-z][a-z\d+.-]*:\/\/([^/?#]*)/i

/** Returns the authority of a request target in absolute form; undefined if it has another form. */
export function authorityOf(target: string): string | undefined {
  return ABSOLUTE_FORM.exec(target)?.[1]
}

/**
 * Returns the path of a request target. Unlike the query, and the authority of the absolute form, it should contain no secrets.
 */
export function pathOf(target: string): string {
  return target.replace(ABSOLUTE_FORM, '').replace(/\?.*/, '')
}
