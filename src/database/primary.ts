import { ConnectionFault } from './causes.ts'
import type { SessionServer } from './session-server.ts'

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
  readonly #renewals: ((reason: string) => void)[] = []
  #generation = 1
  /** Whether a connection of this generation has been verified. */
  #isUsed = false
  /** The last server in use whose identity is known. */
  #identified: SessionServer | undefined

  /** The current generation. Connections of older ones must not be used. */
  get generation(): number {
    return this.#generation
  }

  /** Registers a listener that is called at the beginning of every generation, with the reason. */
  onRenewal(listener: (reason: string) => void): void {
    this.#renewals.push(listener)
  }

  /**
   * Verifies the server of a new connection, and returns the generation that the connection belongs to.
   *
   * @throws {ConnectionFault} if the server is read-only, or a newer primary has been in use
   */
  verify(server: SessionServer): number {
    if (server.isReadOnly) throw this.refuse()
    if (server.timeline !== null) this.#compare(server, server.timeline)
    this.#isUsed = true
    return this.#generation
  }

  /** Begins a new generation if this is not the server in use. */
  #compare(server: SessionServer, timeline: number): void {
    const { systemIdentifier, timeline: latest, startedAt } = this.#identified ?? server
    if (server.systemIdentifier !== systemIdentifier) {
      this.#renew('the address leads to another database cluster')
    } else if (latest !== null && timeline < latest) {
      throw new ConnectionFault(
        'formerPrimary',
        `the server is a former primary: it is on timeline ${timeline}, and timeline ${latest} was in use since; ` +
          'restart the service to use this server nevertheless',
      )
    } else if (timeline !== latest) {
      this.#renew(`another server was promoted: timeline ${timeline} after ${latest}`)
    } else if (server.startedAt !== startedAt) {
      this.#renew('the server was started again')
    }
    this.#identified = server
  }

  /** Begins a new generation, because the server is read-only. Returns the error to throw. */
  refuse(): ConnectionFault {
    const message = 'the server is read-only: a standby, or default_transaction_read_only is on'
    this.#renew(message)
    return new ConnectionFault('readOnly', message)
  }

  /** Begins a new generation, which discards all connections. Does nothing if none of this generation was used. */
  #renew(reason: string): void {
    if (!this.#isUsed) return
    this.#isUsed = false
    this.#generation++
    for (const listener of this.#renewals) listener(reason)
  }
}
