import type { ClientBase } from 'pg'
import type { DatabaseAddress } from './address.ts'
import type { VerifiedServer } from './connections.ts'
import { FormerPrimaryError, ReadOnlyServerError } from './failures.ts'
import { askServer, type ServerIdentity, type SessionServer } from './session-server.ts'

/** How long new connections are refused after the last one was, in milliseconds: each costs the server a process. */
const REFUSAL_MS = 100

export interface PrimaryOptions {
  readonly address: DatabaseAddress
  /** Told why, when connections that were in use are given up. */
  readonly onRenew: (reason: string) => void
  /** Told of every server that is taken into use, and when its `synchronous_commit` changes. */
  readonly onServer: (server: SessionServer) => void
}

/**
 * The one server that all pools of a process use: a primary that takes writes. A new connection proves that it is on that
 * server before its first use. Connections belong to a generation; as soon as one of them shows that the server takes no
 * writes, or that another one has taken over, the next generation begins, and no pool uses an older connection again.
 *
 * | A new connection is on | So |
 * |---|---|
 * | a standby or a read-only server | it is refused, and all others are given up |
 * | the server in use | it joins the others |
 * | a server of the same cluster on a newer timeline, or started again | it begins a generation |
 * | a server of the same cluster on an older timeline | it is refused: acknowledged updates may be missing there |
 * | a server of another cluster | it begins a generation: the address leads there now |
 * | a server that cannot say which one it is | it joins the others |
 */
export class PrimaryServer implements VerifiedServer {
  readonly address: DatabaseAddress
  readonly #onRenew: (reason: string) => void
  readonly #onServer: (server: SessionServer) => void
  readonly #renewals: (() => void)[] = []
  readonly #generations = new WeakMap<ClientBase, number>()
  #generation = 1
  /** Whether a connection of this generation was handed out. */
  #isUsed = false
  #server: ServerIdentity | undefined
  #synchronousCommit: string | undefined
  #host = 0
  #refusal: { readonly error: unknown; readonly until: number } | undefined

  constructor({ address, onRenew, onServer }: PrimaryOptions) {
    this.address = address
    this.#onRenew = onRenew
    this.#onServer = onServer
  }

  /** The server that was verified last; undefined before the first, and where it cannot say which one it is. */
  get identity(): ServerIdentity | undefined {
    return this.#server
  }

  get host(): number {
    return this.#host
  }

  get generation(): number {
    return this.#generation
  }

  onRenewal(listener: () => void): void {
    this.#renewals.push(listener)
  }

  isCurrent(client: ClientBase): boolean {
    return this.#generations.get(client) === this.#generation
  }

  isKnown(client: ClientBase): boolean {
    return this.#generations.has(client)
  }

  /**
   * Verifies a new connection.
   *
   * @throws {ReadOnlyServerError} where it cannot write
   * @throws {FormerPrimaryError} where a newer primary has been in use
   */
  async verify(client: ClientBase, limitMs: number): Promise<void> {
    const server = await askServer(client, limitMs)
    if (server.isReadOnly) {
      const error = new ReadOnlyServerError(server.isStandby)
      this.renew(error.message)
      throw error
    }
    this.#use(server)
    this.#generations.set(client, this.#generation)
    this.#isUsed = true
    this.#refusal = undefined
  }

  #use(server: SessionServer): void {
    const { identity } = server
    const before = this.#server
    if (identity !== undefined && before !== undefined) {
      const { timeline, startedAt } = identity
      if (identity.systemIdentifier !== before.systemIdentifier) {
        this.renew('the address leads to another database cluster')
      } else if (timeline < before.timeline) {
        throw new FormerPrimaryError(timeline, before.timeline)
      } else if (timeline > before.timeline) {
        this.renew(`another server was promoted: timeline ${timeline} after ${before.timeline}`)
      } else if (startedAt !== before.startedAt) {
        this.renew('the server was started again')
      }
    }
    this.#server = identity ?? before
    if (!this.#isUsed || server.synchronousCommit !== this.#synchronousCommit) this.#onServer(server)
    this.#synchronousCommit = server.synchronousCommit
  }

  /** Gives up every connection, as the server takes no writes or another one has taken over. */
  renew(reason: string): void {
    if (!this.#isUsed) return
    this.#isUsed = false
    this.#generation++
    this.#onRenew(reason)
    for (const listener of this.#renewals) listener()
  }

  skip(host: number): void {
    if (this.#host === host) this.#host = (host + 1) % this.address.hosts.length
  }

  refuse(error: unknown): void {
    this.#refusal = { error, until: performance.now() + REFUSAL_MS }
  }

  get refusal(): unknown {
    return this.#refusal !== undefined && performance.now() < this.#refusal.until
      ? this.#refusal.error
      : undefined
  }
}
