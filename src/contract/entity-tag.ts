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

/** An entity tag as a header names it. */
export interface EntityTag {
  /** What is between the quotes. */
  readonly name: string
  readonly isWeak: boolean
}

/** One element of a list, which may be empty, and the comma or the end after it (RFC 9110, sections 5.6.1.2 and 8.8.3). */
const LIST_ELEMENT = /[ \t]*(?:(W\/)?"([\x21\x23-\x7e\x80-\xff]*)")?[ \t]*(,|$)/y

/** The tags that an `If-Match` or an `If-None-Match` lists; undefined if there is none, or it is malformed. */
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
