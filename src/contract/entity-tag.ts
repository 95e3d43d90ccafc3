import type { IncomingHttpHeaders } from 'node:http'
import { ApiError } from './api-error.ts'

/** The entity tags of a header, without their quotes; `*` stands for all. */
export type EntityTags = readonly string[] | '*'

/**
 * An element of the list, which may be empty, and the comma or the end after it (RFC 9110, sections 5.6.1.2 and 8.8.3). It has
 * one way to match spaces: with two, a header full of them would take quadratic time.
 */
const LIST_ELEMENT = /[ \t]*(?:(W\/)?"([\x21\x23-\x7e\x80-\xff]*)"[ \t]*)?(,|$)/gy

/** What proxies that compress responses append to their tags, such as Apache, Caddy, Jetty and LiteSpeed. */
const CODING_SUFFIX = /(?:--?|;)(?:(?:x-)?gzip|gz|br|zstd|deflate|(?:x-)?compress)$/

/**
 * Returns the tags in a header with which a tag of the service is compared; undefined if it is absent. A tag with the suffix of a
 * content coding stands for the one without it, too. `If-Match` leaves weak tags out (RFC 9110, section 8.8.3.2).
 *
 * @throws {ApiError} 400 for a header that is neither `*` nor a list of entity tags: the caller would not notice the mistake
 */
export function entityTags(
  headers: IncomingHttpHeaders,
  name: 'If-Match' | 'If-None-Match',
): EntityTags | undefined {
  const header = headers[name === 'If-Match' ? 'if-match' : 'if-none-match']
  if (header === undefined) return undefined
  const tags = tagsIn(header, name === 'If-None-Match')
  if (tags !== undefined) return tags
  throw new ApiError(
    400,
    `The header ${name} must be * or a list of entity tags in double quotes, such as "12-available".`,
  )
}

/** Whether `If-None-Match` of a read has the current tag, which has its quotes. With a malformed header, only the saving is lost. */
export function hasCurrent(headers: IncomingHttpHeaders, etag: string): boolean {
  const header = headers['if-none-match']
  return header !== undefined && includesTag(tagsIn(header, true), etag)
}

/** Returns the tags, weak ones only if `isWeak`; undefined if the header is malformed. */
function tagsIn(header: string, isWeak: boolean): EntityTags | undefined {
  if (header.trim() === '*') return '*'
  const elements = [...header.matchAll(LIST_ELEMENT)]
  // At the first mistake, the matches end.
  if (elements.at(-1)?.[3] !== '') return undefined
  return elements.flatMap(([, weak, tag]) => {
    if (tag === undefined || (weak !== undefined && !isWeak)) return []
    return CODING_SUFFIX.test(tag) ? [tag, tag.replace(CODING_SUFFIX, '')] : [tag]
  })
}

/** Whether `etag`, which has its quotes, is one of the tags. */
export function includesTag(tags: EntityTags | undefined, etag: string): boolean {
  return tags === '*' || tags?.includes(etag.slice(1, -1)) === true
}
