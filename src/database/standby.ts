import type { ClientBase } from 'pg'
import type { DatabaseAddress } from './address.ts'
import type { VerifiedServer } from './connections.ts'
import type { PrimaryServer } from './primary.ts'
import type { ServerIdentity } from './session-server.ts'
import { askStandby, problemOf } from './standby-identity.ts'
import { StandbyError } from './standby-problem.ts'

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
