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
  readonly name: string
  readonly work: Work
  readonly entries: number
  /** Callers at the same time, each with one connection and one request at a time. */
  readonly callers: number
  readonly contenders: readonly ContenderName[]
}

const all = ['service', 'plain', 'go'] as const

const withCallers = (work: Work, callers: number): Case => ({
  name: `${work}-${callers}`,
  work,
  entries: 1000,
  callers,
  contenders: all,
})

const afterChange = (entries: number, contenders: readonly ContenderName[]): Case => ({
  name: `after-change-${entries}`,
  work: 'after-change',
  entries,
  callers: 1,
  contenders,
})

/** All cases, small tables first. */
export const cases: readonly Case[] = [
  withCallers('list', 1),
  withCallers('list', 64),
  withCallers('update', 1),
  withCallers('update', 64),
  withCallers('mix', 64),
  afterChange(1000, all),
  afterChange(100_000, all),
  // Plain Fastify needs seconds and half a gigabyte for each of these lists.
  afterChange(1_000_000, ['service', 'go']),
]
