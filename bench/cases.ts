/** The servers and clients that are compared, with their names in the table. */
export const contenderNames = {
  service: 'this service',
  plain: 'plain Fastify',
  go: 'Go',
  pg: 'pg alone',
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
  /** How many times as many requests per second the service should serve, at least, as another contender. */
  readonly goals: Readonly<Partial<Record<ContenderName, number>>>
}

const servers = ['service', 'plain', 'go'] as const
const all = [...servers, 'pg'] as const

/** Returns a case with 1,000 entries. */
const withCallers = (
  work: Work,
  callers: number,
  contenders: readonly ContenderName[],
  goals: Case['goals'],
): Case => ({ name: `${work}-${callers}`, work, entries: 1000, callers, contenders, goals })

/** Returns a case with one caller. */
const afterChange = (entries: number, contenders: readonly ContenderName[], goals: Case['goals']): Case => ({
  name: `after-change-${entries}`,
  work: 'after-change',
  entries,
  callers: 1,
  contenders,
  goals,
})

/** All cases, small tables first. */
export const cases: readonly Case[] = [
  withCallers('list', 1, servers, { plain: 3, go: 2 }),
  // The faster the machine sends the bytes of a list, the smaller the ratio: 16 to 20 on two shared cores.
  withCallers('list', 64, servers, { plain: 12, go: 7 }),
  // A single update waits for one commit with every contender. Go takes less CPU time for it, and pg alone has no HTTP.
  withCallers('update', 1, all, { plain: 0.95, go: 0.75, pg: 0.5 }),
  withCallers('update', 64, all, { plain: 2.3, go: 1.8, pg: 1 }),
  withCallers('mix', 64, servers, { plain: 8, go: 4.5 }),
  // Most of the time is that of a round trip and of PostgreSQL's check of each row, which nobody can avoid.
  afterChange(1000, all, { plain: 1.3, go: 1.1 }),
  afterChange(100_000, all, { plain: 5, go: 3, pg: 3 }),
  // Plain Fastify needs seconds and half a gigabyte for each of these lists.
  afterChange(1_000_000, ['service', 'pg'], { pg: 3 }),
]
