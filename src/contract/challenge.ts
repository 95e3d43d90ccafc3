/** The header that says how to authenticate, and what was wrong (RFC 6750, section 3). */
export function challenge(
  error?: 'invalid_request' | 'invalid_token' | 'insufficient_scope',
): Record<string, string> {
  const realm = 'Bearer realm="inventory"'
  return { 'www-authenticate': error === undefined ? realm : `${realm}, error="${error}"` }
}
