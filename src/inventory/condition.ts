import type { IncomingHttpHeaders } from 'node:http'
import { entityTags } from '../contract/entity-tag.ts'
import { ApiError } from '../contract/errors.ts'
import type { InventoryItem } from './schemas.ts'

/** What an entry must be, for an update to be made; each field that is there must hold. Tags are without quotes. */
export interface Condition {
  /** The entry has one of these tags. */
  readonly anyOf?: readonly string[]
  /** The entry has none of these tags. */
  readonly noneOf?: readonly string[]
}

/** A tag that an entry can have; PostgreSQL is asked about no other, as it would match nothing. */
const ENTRY_TAG = /^\d{1,10}-[a-z]+$/

/** The entity tag of an entry: its quantity and status, so that whoever has read a list knows it. */
export function entryTag({ quantity, status }: InventoryItem): string {
  return `"${quantity}-${status}"`
}

/**
 * The condition that a request makes, undefined if it has none (RFC 9110, section 13.2.2). `If-Match: *` is none, as an
 * entry that does not exist is a 404 anyway. `If-Match` compares strongly, so that weak tags match nothing; `If-None-Match`
 * compares weakly (section 8.8.3.2).
 *
 * @throws {ApiError} 400 for a header that is neither `*` nor a list of entity tags: its sender has made a mistake that
 *   a 412 would hide
 */
export function conditionOf(headers: IncomingHttpHeaders): Condition | undefined {
  const match = tagsOf('If-Match', headers['if-match'])
  const noneMatch = tagsOf('If-None-Match', headers['if-none-match'])
  const anyOf = match === '*' ? undefined : match?.filter(({ isWeak }) => !isWeak)
  const condition: { anyOf?: string[]; noneOf?: string[] } = {}
  if (anyOf !== undefined) condition.anyOf = namesOf(anyOf)
  if (noneMatch === '*') condition.anyOf = []
  else if (noneMatch !== undefined && noneMatch.length > 0) condition.noneOf = namesOf(noneMatch)
  return condition.anyOf === undefined && condition.noneOf === undefined ? undefined : condition
}

function tagsOf(name: string, value: string | undefined): ReturnType<typeof entityTags> {
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
