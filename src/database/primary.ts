import { ConnectionFault } from './errors.ts'
import type { ServerIdentity, SessionServer } from './session-server.ts'

/** How long no new connection is opened after a server was read-only, because each attempt costs it a process. */
const REFUSAL_MS = 100

export interface PrimaryOptions {
  /** Called with the reason when the connections in use are discarded. */
  readonly onRenew: (reason: string) => void
  /** Called when a server is first used in a generation, and when its `synchronous_commit` has changed. */
  readonly onServer: (server: SessionServer) => void
}

/**
 * Keeps all pools of a process on one server, the primary. Each new connection is verified before its first use. Connections
 * belong to a generation: as soon as one of them shows that the server is read-only or that another server was promoted, a
 * new generation begins, and no pool uses an older connection again.
 *
 * | A new connection is on | What happens |
 * |---|---|
 * | a standby or a read-only server | it is refused, and all other connections are discarded |
 * | the server in use | it is used |
 * | a server of the same cluster on a newer timeline, or restarted since | it begins a new generation |
 * | a server of the same cluster on an older timeline | it is refused: acknowledged updates may be missing there |
 * | a server of another cluster | it begins a new generation, because the address now leads there |
 * | a server whose identity is unknown | it is used |
 */
export class PrimaryServer {
  readonly #onRenew: (reason: string) => void
  readonly #onServer: (server: SessionServer) => void
  readonly #renewals: (() => void)[] = []
  #generation = 1
  /** Whether a connection of this generation has been verified. */
  #isUsed = false
  #server: ServerIdentity | undefined
  #synchronousCommit: string | undefined
  #refusal: { readonly error: unknown; readonly until: number } | undefined

  constructor({ onRenew, onServer }: PrimaryOptions) {
    this.#onRenew = onRenew
    this.#onServer = onServer
  }

  /** The current generation. Connections of older ones must not be used. */
  get generation(): number {
    return this.#generation
  }

  /** Registers a listener that is called at the beginning of every generation. */
  onRenewal(listener: () => void): void {
    this.#renewals.push(listener)
  }

  /**
   * Verifies the server of a new connection, and returns the generation that the connection belongs to.
   *
   * @throws {ConnectionFault} if the server is read-only, or a newer primary has been in use
   */
  verify(server: SessionServer): number {
    if (server.isReadOnly) {
      const why = server.isStandby
        ? 'a standby, which is read-only'
        : 'read-only: default_transaction_read_only is on'
      const error = new ConnectionFault('readOnly', `the server is ${why}`)
      this.renew(error.message)
      this.#refusal = { error, until: performance.now() + REFUSAL_MS }
      throw error
    }
    this.#use(server)
    this.#isUsed = true
    this.#refusal = undefined
    return this.#generation
  }

  #use(server: SessionServer): void {
    const { identity } = server
    const previous = this.#server
    if (identity !== undefined && previous !== undefined) {
      const { timeline, startedAt } = identity
      if (identity.systemIdentifier !== previous.systemIdentifier) {
        this.renew('the address leads to another database cluster')
      } else if (timeline < previous.timeline) {
        throw new ConnectionFault(
          'formerPrimary',
          `the server is a former primary: it is on timeline ${timeline}, and timeline ${previous.timeline} was in use since; ` +
            'restart the service to use this server nevertheless',
        )
      } else if (timeline > previous.timeline) {
        this.renew(`another server was promoted: timeline ${timeline} after ${previous.timeline}`)
      } else if (startedAt !== previous.startedAt) {
        this.renew('the server was started again')
      }
    }
    this.#server = identity ?? previous
    if (!this.#isUsed || server.synchronousCommit !== this.#synchronousCommit) this.#onServer(server)
    this.#synchronousCommit = server.synchronousCommit
  }

  /** Begins a new generation, which discards all connections. Does nothing if none of this generation was used. */
  renew(reason: string): void {
    if (!this.#isUsed) return
    this.#isUsed = false
    this.#generation++
    this.#onRenew(reason)
    for (const listener of this.#renewals) listener()
  }

  /** Why the server could not be used a moment ago, or undefined if new connections should be tried. */
  get refusal(): unknown {
    return this.#refusal !== undefined && performance.now() < this.#refusal.until
      ? this.#refusal.error
      : undefined
  }
}
