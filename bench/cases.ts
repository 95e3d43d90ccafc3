/** What the callers of a case do. */
export type Work =
  /** Lists, again and again, while nothing changes. */
  | 'list'
  /** Updates of random entries. */
  | 'update'
  /** 90 % lists and 10 % updates, at random. */
  | 'mix'
  /** Lists by callers that have the present one already. */
  | 'if-none-match'
  /** One list at a time, each right after a change that was made past the contender. */
  | 'after-change'

/** Who can be measured, by the names that the tables use. */
export const contenderNames = {
  service: 'this service',
  'service-2': 'this service, 2 workers',
  'service-4': 'this service, 4 workers',
  'service-commits': 'this service, beside commits',
  plain: 'plain Fastify',
  'node-http': 'node:http',
  direct: 'pg alone',
  copy: 'COPY',
} as const
export type ContenderName = keyof typeof contenderNames

export interface Case {
  readonly name: string
  /** The heading of the table that it belongs to. */
  readonly title: string
  readonly work: Work
  /** How many entries the inventory has. */
  readonly entries: number
  readonly connections: number
  /** How far the servers are from the database, in milliseconds of round trip; on the same machine if it is absent. */
  readonly roundTripMs?: number
  readonly contenders: readonly ContenderName[]
}

const connectionCounts = [1, 16, 64, 256]
const networkConnectionCounts = [1, 4, 16, 64]
const roundTripsMs = [0, 1, 5, 20]
const tableSizes = [1_000, 100_000, 1_000_000]

/** Every case, in the order in which they run: from small tables to large ones. */
export const cases: readonly Case[] = [
  ...connectionCounts.map((connections) => ({
    name: `list-${connections}`,
    title: 'List, 1,000 entries',
    work: 'list' as const,
    entries: 1000,
    connections,
    contenders: ['service', 'plain', 'node-http'] as const,
  })),
  ...connectionCounts.map((connections) => ({
    name: `update-${connections}`,
    title: 'Update, 1,000 entries',
    work: 'update' as const,
    entries: 1000,
    connections,
    contenders: ['service', 'plain', 'node-http', 'direct'] as const,
  })),
  ...roundTripsMs.flatMap((roundTripMs) =>
    networkConnectionCounts.map((connections) => ({
      name: `network-${roundTripMs}-${connections}`,
      title: `Update, the database ${roundTripMs} ms away, 1,000 entries`,
      work: 'update' as const,
      entries: 1000,
      connections,
      roundTripMs,
      contenders: ['service', 'plain'] as const,
    })),
  ),
  {
    name: 'mix',
    title: '90 % lists and 10 % updates, 1,000 entries',
    work: 'mix',
    entries: 1000,
    connections: 64,
    contenders: ['service', 'plain', 'node-http'],
  },
  {
    name: 'if-none-match',
    title: 'List with If-None-Match, 1,000 entries',
    work: 'if-none-match',
    entries: 1000,
    connections: 64,
    contenders: ['service', 'plain', 'node-http'],
  },
  {
    name: 'workers-list',
    title: 'List on several cores, 1,000 entries',
    work: 'list',
    entries: 1000,
    connections: 64,
    contenders: ['service', 'service-2', 'service-4', 'node-http'],
  },
  {
    name: 'workers-update',
    title: 'Update on several cores, 1,000 entries',
    work: 'update',
    entries: 1000,
    connections: 64,
    contenders: ['service', 'service-2', 'service-4', 'direct'],
  },
  {
    name: 'beside-commits',
    title: 'List, 1,000 entries, beside 1,000 commits a second in another database of the server',
    work: 'list',
    entries: 1000,
    connections: 64,
    contenders: ['service', 'service-commits'],
  },
  ...tableSizes.flatMap((entries): Case[] => [
    {
      name: `unchanged-${entries}`,
      title: `List of ${entries.toLocaleString('en')} entries, unchanged`,
      work: 'list',
      entries,
      connections: 4,
      // Each list of a million takes the plain server seconds and half a gigabyte, so four at once would end it.
      contenders: entries < 1_000_000 ? ['service', 'plain', 'node-http'] : ['service', 'node-http'],
    },
    {
      name: `after-change-${entries}`,
      title: `List of ${entries.toLocaleString('en')} entries, one reader, right after a change`,
      work: 'after-change',
      entries,
      connections: 1,
      contenders: ['service', 'plain', 'copy'],
    },
  ]),
]
