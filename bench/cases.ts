import type { Sample } from './statistics.ts'

/** The kind of load in a case. */
export type Work =
  /** Repeated lists while nothing changes. */
  | 'list'
  /** Updates of random entries. */
  | 'update'
  /** 90 % lists and 10 % updates, at random. */
  | 'mix'
  /** Lists for callers that already have the current list. */
  | 'if-none-match'
  /** One list at a time, each right after a change made directly in the database. */
  | 'after-change'

/** The names of the contenders in the result tables. */
export const contenderNames = {
  service: 'this service',
  'service-commits': 'this service, with commits',
  'service-updates': 'this service, with updates',
  plain: 'plain Fastify',
  go: 'Go',
  'node-http': 'node:http',
  'node-http-commits': 'node:http, with commits',
  direct: 'pg alone',
  copy: 'COPY',
} as const
export type ContenderName = keyof typeof contenderNames

export interface Case {
  readonly name: string
  /** The heading of the case's table in the results. */
  readonly title: string
  readonly work: Work
  /** Number of entries in the inventory. */
  readonly entries: number
  readonly connections: number
  /** Simulated round trip to the database in milliseconds. Absent if there is no delay. */
  readonly roundTripMs?: number
  readonly contenders: readonly ContenderName[]
}

/** A contender that is ready to be measured. */
export interface Contender {
  /**
   * Sends each kind of request once, and compares the responses byte for byte with those expected for the initial inventory.
   * Rejects if a response is wrong, because the speed of wrong responses means nothing.
   */
  verify(given: Case): Promise<void>
  /** Generates the load of the case for at least `seconds`, and returns the result. */
  measure(given: Case, seconds: number): Promise<Sample>
  /** Returns the CPU time of the contender's processes since their start, in seconds, or undefined if it is unknown. */
  cpuSeconds?(): Promise<number | undefined>
  stop(): Promise<void>
}

/** Adds the servers in other languages to each case that includes plain Fastify. */
export function withPeers(cases: readonly Case[]): Case[] {
  return cases.map((given) =>
    given.contenders.includes('plain') ? { ...given, contenders: [...given.contenders, 'go'] } : given,
  )
}

const connectionCounts = [1, 16, 64, 256]
const networkConnectionCounts = [1, 4, 16, 64]
const roundTripsMs = [0, 1, 5, 20]
const tableSizes = [1_000, 100_000, 1_000_000]

/** All cases in the order in which they run: small tables first. */
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
    name: 'with-commits',
    title: 'List, 1,000 entries, with 1,000 commits per second in another database of the server',
    work: 'list',
    entries: 1000,
    connections: 64,
    contenders: ['service', 'service-commits', 'node-http', 'node-http-commits'],
  },
  ...tableSizes.flatMap((entries): Case[] => [
    {
      name: `unchanged-${entries}`,
      title: `List of ${entries.toLocaleString('en')} entries, unchanged`,
      work: 'list',
      entries,
      connections: 4,
      // Plain Fastify needs seconds and half a gigabyte for each list of a million entries, so four at once would crash it.
      contenders: entries < 1_000_000 ? ['service', 'plain', 'node-http'] : ['service', 'node-http'],
    },
    {
      name: `after-change-${entries}`,
      title: `List of ${entries.toLocaleString('en')} entries, one client, right after a change`,
      work: 'after-change',
      entries,
      connections: 1,
      contenders: ['service', 'plain', 'copy'],
    },
  ]),
  {
    name: 'polled-1000000',
    title: 'List of 1,000,000 entries, 20 clients, with 100 updates per second',
    work: 'list',
    entries: 1_000_000,
    connections: 20,
    contenders: ['service', 'service-updates'],
  },
]
