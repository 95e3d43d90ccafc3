/**
 * True where an `If-None-Match` names the entity tag, which is one in quotes without `W/`, by the weak comparison of
 * RFC 9110, section 8.8.3.2.
 */
export function matches(condition: string | undefined, etag: string): boolean {
  if (condition === undefined) return false
  return (
    condition.trim() === '*' || condition.split(',').some((tag) => tag.trim().replace(/^W\//, '') === etag)
  )
}
