import type { IncomingHttpHeaders } from 'node:http'
import { entityTags } from '../../contract/entity-tag.ts'
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

/** Returns whether an entry meets the condition. */
export function isMet({ anyOf, noneOf }: Condition = {}, entry: InventoryItem): boolean {
  const tag = entryTag(entry).slice(1, -1)
  return anyOf?.includes(tag) !== false && noneOf?.includes(tag) !== true
}

/**
 * Parses the condition of a request; undefined if it has none (RFC 9110, section 13.2.2). `If-Match: *` is no condition,
 * because a missing entry is a 404 anyway.
 *
 * @throws {ApiError} what `entityTags` throws
 */
export function parseCondition(headers: IncomingHttpHeaders): Condition | undefined {
  const match = entityTags(headers, 'If-Match')
  const noneMatch = entityTags(headers, 'If-None-Match')
  const condition: { anyOf?: string[]; noneOf?: string[] } = {}
  if (match !== undefined && match !== '*') condition.anyOf = keepEntryTags(match)
  if (noneMatch === '*') condition.anyOf = []
  else if (noneMatch !== undefined) condition.noneOf = keepEntryTags(noneMatch)
  return condition.anyOf === undefined && condition.noneOf === undefined ? undefined : condition
}

function keepEntryTags(tags: readonly string[]): string[] {
  return tags.filter((tag) => ENTRY_TAG.test(tag))
}
