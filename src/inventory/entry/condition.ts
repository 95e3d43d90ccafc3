import type { IncomingHttpHeaders } from 'node:http'
import { entityTags } from '../../contract/entity-tag.ts'
import { ApiError } from '../../contract/errors.ts'
import type { InventoryItem } from './schemas.ts'

/** The condition of an update. Every field that is present must hold. Tags are without quotes. */
export interface Condition {
  /** The entry has one of these tags. */
  readonly anyOf?: readonly string[]
  /** The entry has none of these tags. */
  readonly noneOf?: readonly string[]
}

/** Matches tags that an entry can have. Others never match, so they are not sent to PostgreSQL. */
const ENTRY_TAG = /^\d{1,10}-[a-z]+$/

/** Returns the entity tag of an entry. It is derived from quantity and status, so that a client can build it from the list. */
export function entryTag({ quantity, status }: InventoryItem): string {
  return `"${quantity}-${status}"`
}

/** Returns whether an entry with this tag, which has no quotes, meets the condition. */
export function isMet({ anyOf, noneOf }: Condition = {}, tag: string): boolean {
  return anyOf?.includes(tag) !== false && noneOf?.includes(tag) !== true
}

/**
 * Parses the condition of a request; undefined if it has none (RFC 9110, section 13.2.2). `If-Match: *` is no condition,
 * because a missing entry is a 404 anyway. Comparison is strong for `If-Match`, so that weak tags never match, and weak for
 * `If-None-Match` (section 8.8.3.2).
 *
 * @throws {ApiError} 400 for a header that is neither `*` nor a list of entity tags: a 412 would hide the mistake
 */
export function conditionOf(headers: IncomingHttpHeaders): Condition | undefined {
  const match = parseTags('If-Match', headers['if-match'])
  const noneMatch = parseTags('If-None-Match', headers['if-none-match'])
  const anyOf = match === '*' ? undefined : match?.filter(({ isWeak }) => !isWeak)
  const condition: { anyOf?: string[]; noneOf?: string[] } = {}
  if (anyOf !== undefined) condition.anyOf = namesOf(anyOf)
  if (noneMatch === '*') condition.anyOf = []
  else if (noneMatch !== undefined && noneMatch.length > 0) condition.noneOf = namesOf(noneMatch)
  return condition.anyOf === undefined && condition.noneOf === undefined ? undefined : condition
}

/**
 * Returns whether a list with this entity tag, which has its quotes, may be sent: `If-Match` is absent, is `*` or has the
 * tag. Comparison is strong (RFC 9110, section 13.1.1).
 *
 * @throws {ApiError} 400 for a header that is neither `*` nor a list of entity tags
 */
export function meetsIfMatch(headers: IncomingHttpHeaders, etag: string): boolean {
  const match = parseTags('If-Match', headers['if-match'])
  if (match === undefined || match === '*') return true
  return match.some(({ name, isWeak }) => !isWeak && `"${name}"` === etag)
}

function parseTags(name: string, value: string | undefined): ReturnType<typeof entityTags> {
  const tags = entityTags(value)
  if (value !== undefined && tags === undefined) {
    throw new ApiError(
      400,
      `The header ${name} must be * or a list of entity tags in double quotes, such as "12-available".`,
    )
  }
  return tags
}

function namesOf(tags: readonly { readonly name: string }[]): string[] {
  return tags.map(({ name }) => name).filter((name) => ENTRY_TAG.test(name))
}
