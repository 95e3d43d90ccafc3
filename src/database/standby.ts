import pg, { type ClientBase } from 'pg'
import type { DatabaseAddress } from './address.ts'
import type { VerifiedServer } from './connections.ts'
import { DatabaseUnavailableError, isFatal, ServerChangedError } from './failures.ts'
import type { PrimaryServer } from './primary.ts'
import type { ServerIdentity } from './session-server.ts'

/** Why a standby cannot be read, in words that complete the sentence "The standby is not used: …". */
export const standbyProblems = {
  unreachable: 'it cannot be reached or cannot answer',
  not_standby: 'it is not a standby: the server takes writes',
  other_cluster: 'it belongs to another database cluster than the primary',
  other_timeline:
    'it is not known to follow the primary’s timeline; after a failover, its next restartpoint shows whether it does',
  other_table: 'its address leads to another database or another table than that of the primary',
  unverified:
    'the servers cannot say which cluster and timeline they belong to; both roles must be allowed to run pg_control_system(), pg_control_checkpoint() and pg_control_recovery()',
  lagging: 'it does not replay within 2 seconds what the primary has written',
  ahead:
    'it shows commits that the primary does not show yet, as those do that wait for a synchronous standby',
  unsuited: 'the table cannot be read there exactly, such as a foreign, a partitioned or an unlogged one',
  conflict: 'the read conflicted with recovery',
  interrupted: 'the connection was replaced in the middle of the read',
} as const

export type StandbyProblem = keyof typeof standbyProblems

/** The standby cannot answer now, so the primary has to. */
export class StandbyError extends Error {
  override readonly name = 'StandbyError'
  readonly problem: StandbyProblem

  constructor(problem: StandbyProblem, options?: ErrorOptions) {
    super(standbyProblems[problem], options)
    this.problem = problem
  }
}

/** SQLSTATE codes of statements that recovery cancels, or whose lock it holds: serialization failure, deadlock, lock_timeout. */
const conflictStates = ['40001', '40P01', '55P03']

/** SQLSTATE of a statement that a server in recovery cannot run, such as one about an unlogged table. */
const UNSUPPORTED_STATE = '0A000'

/** The failure of a statement on a standby, as one of the problems. */
export function standbyErrorOf(error: unknown): StandbyError {
  const cause = error instanceof DatabaseUnavailableError ? error.cause : error
  if (cause instanceof StandbyError) return cause
  if (cause instanceof ServerChangedError) return new StandbyError('interrupted', { cause })
  // Of several hosts, one that is no standby is as it should be where another one may be.
  const causes: readonly unknown[] = cause instanceof AggregateError ? cause.errors : [cause]
  const errors = causes.filter((one) => one instanceof StandbyError)
  const reported = errors.find(({ problem }) => problem !== 'not_standby') ?? errors[0]
  if (reported !== undefined && errors.length === causes.length) return reported
  return new StandbyError(cause instanceof pg.DatabaseError ? problemByState(cause.code) : 'unreachable', {
    cause,
  })
}

function problemByState(code = ''): StandbyProblem {
  if (conflictStates.includes(code)) return 'conflict'
  return code === UNSUPPORTED_STATE ? 'unsuited' : 'unreachable'
}

/** What a server says of itself that its standby has to share. */
export interface StandbyIdentity {
  readonly isStandby: boolean
  readonly systemIdentifier: string
  /** The newest timeline that the server is known to have replayed; the one that it is on may be newer. */
  readonly timeline: number
}

/**
 * In recovery PostgreSQL does not say which timeline it is on. The control file has that of the last restartpoint and of
 * the last page that was written; the WAL receiver's is known at once, to roles that may read all statistics.
 */
const STANDBY_IDENTITY = `SELECT pg_is_in_recovery() AS "isStandby", system_identifier::text AS "systemIdentifier",
  greatest(timeline_id, min_recovery_end_timeline, (SELECT received_tli FROM pg_stat_wal_receiver)) AS timeline
  FROM pg_control_system(), pg_control_checkpoint(), pg_control_recovery()`

/** @throws {StandbyError} where the role may not ask, or the server speaks only PostgreSQL's language */
export async function askStandby(client: ClientBase, limitMs: number): Promise<StandbyIdentity> {
  const config = { text: STANDBY_IDENTITY, query_timeout: limitMs }
  try {
    const { rows } = await client.query<StandbyIdentity>(config)
    const [row] = rows
    if (row === undefined) throw new Error('PostgreSQL has answered without a row')
    return row
  } catch (error) {
    if (!(error instanceof pg.DatabaseError) || isFatal(error)) throw error
    throw new StandbyError('unverified', { cause: error })
  }
}

/** Why that server is no standby of that primary; undefined where it is one. */
export function problemOf(
  standby: StandbyIdentity,
  primary: ServerIdentity | undefined,
): StandbyProblem | undefined {
  if (!standby.isStandby) return 'not_standby'
  if (primary === undefined) return 'unverified'
  if (standby.systemIdentifier !== primary.systemIdentifier) return 'other_cluster'
  return standby.timeline === primary.timeline ? undefined : 'other_timeline'
}

/** Equal for servers whose WAL has one history, so that positions in it and transaction ids mean the same. */
export function historyOf({ systemIdentifier, timeline }: ServerIdentity): string {
  return `cluster ${systemIdentifier}, timeline ${timeline}`
}

/** What a connection was verified against. */
interface Verification {
  readonly generation: number
  readonly history: string
}

/**
 * The standby of the primary that is in use. A new connection proves that it is on one before its first use. With the
 * primary, its connections are renewed, too, so that none outlives a failover.
 */
export class StandbyServer implements VerifiedServer {
  readonly address: DatabaseAddress
  readonly #primary: PrimaryServer
  readonly #renewals: (() => void)[] = []
  readonly #verifications = new WeakMap<ClientBase, Verification>()
  #generation = 1
  #host = 0

  constructor(address: DatabaseAddress, primary: PrimaryServer) {
    this.address = address
    this.#primary = primary
    primary.onRenewal(() => this.renew())
  }

  get host(): number {
    return this.#host
  }

  get generation(): number {
    return this.#generation
  }

  /** The history of the primary that is in use; undefined where that cannot say. */
  get history(): string | undefined {
    const { identity } = this.#primary
    return identity && historyOf(identity)
  }

  /** True where a statement was answered by the primary that is in use. */
  isPrimary(timeline: number, startedAt: string): boolean {
    const { identity } = this.#primary
    return identity?.timeline === timeline && identity.startedAt === startedAt
  }

  onRenewal(listener: () => void): void {
    this.#renewals.push(listener)
  }

  isCurrent(client: ClientBase): boolean {
    const { generation, history } = this.#verifications.get(client) ?? {}
    return generation === this.#generation && history === this.history
  }

  isKnown(client: ClientBase): boolean {
    return this.#verifications.has(client)
  }

  /** @throws {StandbyError} where it is no standby of the primary in use */
  async verify(client: ClientBase, limitMs: number): Promise<void> {
    const { identity } = this.#primary
    const generation = this.#generation
    const problem = problemOf(await askStandby(client, limitMs), identity)
    if (problem !== undefined || identity === undefined) throw new StandbyError(problem ?? 'unverified')
    this.#verifications.set(client, { generation, history: historyOf(identity) })
  }

  /** Gives up every connection. */
  renew(): void {
    this.#generation++
    for (const listener of this.#renewals) listener()
  }

  skip(host: number): void {
    if (this.#host === host) this.#host = (host + 1) % this.address.hosts.length
  }

  /** Nothing is remembered: a standby that cannot be used is not asked again for every list. */
  refuse(): void {}

  readonly refusal = undefined
}
