import pg, { type ClientBase } from 'pg'
import type { DatabaseAddress } from './address.ts'
import type { VerifiedServer } from './connections.ts'
import { causeOf, ServerChangedError } from './errors.ts'
import { isFatal } from './failures.ts'
import { onlyRow } from './only-row.ts'
import type { PrimaryServer } from './primary.ts'
import type { ServerIdentity } from './session-server.ts'

/** Why a standby cannot be read, in words that complete the sentence "The standby is not used: …". */
export const standbyProblems = {
  unreachable: 'it cannot be reached or cannot answer',
  not_standby: 'it is not a standby: the server accepts writes',
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

/** The standby cannot be read now, so the read must use the primary. */
export class StandbyError extends Error {
  override readonly name = 'StandbyError'
  readonly problem: StandbyProblem

  constructor(problem: StandbyProblem, options?: ErrorOptions) {
    super(standbyProblems[problem], options)
    this.problem = problem
  }
}

/** SQLSTATE codes of statements that conflict with recovery: serialization failure, deadlock, lock_timeout. */
const conflictStates = ['40001', '40P01', '55P03']

/** SQLSTATE of a statement that a server in recovery does not support, such as a read of an unlogged table. */
const UNSUPPORTED_STATE = '0A000'

/** Converts the error of a statement on a standby to a StandbyError with one of the problems. */
export function standbyErrorOf(error: unknown): StandbyError {
  const cause = causeOf(error)
  if (cause instanceof StandbyError) return cause
  if (cause instanceof ServerChangedError) return new StandbyError('interrupted', { cause })
  // With several hosts, the primary may be one of them, so `not_standby` is reported only if no host has another problem.
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

/** Identity of a standby, to compare with the identity of the primary. */
export interface StandbyIdentity {
  readonly isStandby: boolean
  readonly systemIdentifier: string
  /** The newest timeline that the server is known to have replayed. Its current timeline may be newer. */
  readonly timeline: number
}

/**
 * In recovery, PostgreSQL does not report its current timeline. The control file has the timelines of the last restartpoint
 * and of the minimum recovery point. The WAL receiver's timeline is newer, but visible only to roles that may read all
 * statistics (`pg_read_all_stats`).
 */
const STANDBY_IDENTITY = `SELECT pg_is_in_recovery() AS "isStandby", system_identifier::text AS "systemIdentifier",
  greatest(timeline_id, min_recovery_end_timeline, (SELECT received_tli FROM pg_stat_wal_receiver)) AS timeline
  FROM pg_control_system(), pg_control_checkpoint(), pg_control_recovery()`

/**
 * Returns the identity of the server that the client is connected to; waits at most `limitMs`.
 *
 * @throws {StandbyError} if the role may not run the functions, or the server is not PostgreSQL and lacks them
 */
export async function askStandby(client: ClientBase, limitMs: number): Promise<StandbyIdentity> {
  const config = { text: STANDBY_IDENTITY, query_timeout: limitMs }
  try {
    const { rows } = await client.query<StandbyIdentity>(config)
    return onlyRow(rows)
  } catch (error) {
    if (!(error instanceof pg.DatabaseError) || isFatal(error)) throw error
    throw new StandbyError('unverified', { cause: error })
  }
}

/** Returns why the server is not a standby of the primary, or undefined if it is one. */
export function problemOf(
  standby: StandbyIdentity,
  primary: ServerIdentity | undefined,
): StandbyProblem | undefined {
  if (!standby.isStandby) return 'not_standby'
  if (primary === undefined) return 'unverified'
  if (standby.systemIdentifier !== primary.systemIdentifier) return 'other_cluster'
  return standby.timeline === primary.timeline ? undefined : 'other_timeline'
}

/**
 * Identifies the history of the primary's WAL. If it is equal at two moments, WAL positions and transaction ids of both are
 * comparable, on the primary and on its standbys. A stopped server can be replaced by an older copy of its files, with the same
 * system identifier and timeline, so the history also ends when the primary is started again.
 */
function historyOf({ systemIdentifier, timeline, startedAt }: ServerIdentity): string {
  return `cluster ${systemIdentifier}, timeline ${timeline}, started at ${startedAt}`
}

/** The generation and the WAL history for which a connection was verified. */
interface Verification {
  readonly generation: number
  readonly history: string
}

/**
 * Verifies that connections are on a standby of the primary in use. Each new connection is verified before its first use. When
 * the connections to the primary are renewed, those to the standby are renewed, too, so that none outlives a failover.
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

  /** The WAL history of the primary in use, or undefined if it is unknown. */
  get history(): string | undefined {
    const { identity } = this.#primary
    return identity && historyOf(identity)
  }

  /** Whether the timeline and the start time are those of the primary in use. */
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

  /** @throws {StandbyError} if the server is not a standby of the primary in use */
  async verify(client: ClientBase, _host: number, limitMs: number): Promise<void> {
    const { identity } = this.#primary
    const generation = this.#generation
    const problem = problemOf(await askStandby(client, limitMs), identity)
    if (problem !== undefined || identity === undefined) throw new StandbyError(problem ?? 'unverified')
    this.#verifications.set(client, { generation, history: historyOf(identity) })
  }

  /** Starts a new generation, so that no current connection is used again. */
  renew(): void {
    this.#generation++
    for (const listener of this.#renewals) listener()
  }

  skip(host: number): void {
    if (this.#host === host) this.#host = (host + 1) % this.address.hosts.length
  }

  /** Does nothing: after a failure, MonitoredStandby does not use the standby for lists until a check succeeds. */
  refuse(): void {}

  readonly refusal = undefined
}
