/** The servers that are compared, with their names in the table. */
export const contenderNames = {
  service: 'this service',
  plain: 'plain Fastify',
  go: 'Go',
} as const
export type ContenderName = keyof typeof contenderNames

/** The kind of load in a case: repeated lists, random updates, nine lists for each update, or lists right after a change. */
export type Work = 'list' | 'update' | 'mix' | 'after-change'

export interface Case {
  readonly work: Work
  readonly entries: number
  /** Callers at the same time, each with one connection and one request at a time. */
  readonly callers: number
  readonly contenders: readonly ContenderName[]
}

const all = ['service', 'plain', 'go'] as const

/** All cases, small tables first. */
export const cases: readonly Case[] = [
  { work: 'list', entries: 1000, callers: 1, contenders: all },
  { work: 'list', entries: 1000, callers: 64, contenders: all },
  { work: 'update', entries: 1000, callers: 1, contenders: all },
  { work: 'update', entries: 1000, callers: 64, contenders: all },
  { work: 'mix', entries: 1000, callers: 64, contenders: all },
  { work: 'after-change', entries: 1000, callers: 1, contenders: all },
  { work: 'after-change', entries: 100_000, callers: 1, contenders: all },
  // Plain Fastify needs seconds and half a gigabyte for each of these lists.
  { work: 'after-change', entries: 1_000_000, callers: 1, contenders: ['service', 'go'] },
]

/** Returns the name of a case: its work, and what differs among the cases of that. */
export const toName = ({ work, entries, callers }: Case): string =>
  `${work}-${work === 'after-change' ? entries : callers}`
