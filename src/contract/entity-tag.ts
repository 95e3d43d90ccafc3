/**
 * Whether an `If-None-Match` header matches an entity tag, by weak comparison (RFC 9110, section 8.8.3.2). `etag` is a
 * strong tag, with its quotes.
 */
export function matches(condition: string | undefined, etag: string): boolean {
  if (condition === undefined) return false
  return (
    condition.trim() === '*' || condition.split(',').some((tag) => tag.trim().replace(/^W\//, '') === etag)
  )
}

/** An entity tag from a header. */
export interface EntityTag {
  /** The text between the quotes. */
  readonly name: string
  readonly isWeak: boolean
}

/**
 * An element of the list, which may be empty, and the comma or the end after it (RFC 9110, sections 5.6.1.2 and 8.8.3). It has
 * one way to match spaces: with two, a header full of them would take quadratic time.
 */
const LIST_ELEMENT = /[ \t]*(?:(W\/)?"([\x21\x23-\x7e\x80-\xff]*)"[ \t]*)?(,|$)/y

/** Parses an `If-Match` or `If-None-Match` header. Returns undefined if it is absent or malformed. */
export function entityTags(header: string | undefined): readonly EntityTag[] | '*' | undefined {
  if (header === undefined) return undefined
  if (header.trim() === '*') return '*'
  const tags: EntityTag[] = []
  for (let at = 0; ; ) {
    LIST_ELEMENT.lastIndex = at
    const element = LIST_ELEMENT.exec(header)
    if (element === null) return undefined
    const [text, weak, name, end] = element
    if (name !== undefined) tags.push({ name, isWeak: weak !== undefined })
    if (end === '') return tags
    at += text.length
  }
}
