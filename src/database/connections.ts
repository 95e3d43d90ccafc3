import pg from 'pg'
import { parseAddress } from './address.ts'
import { CommitWatch } from './commit-warnings.ts'
import { ConnectionFault } from './error-meaning.ts'
import type { DatabaseOptions } from './pool-options.ts'
import type { Descriptions } from './prepared-statement.ts'
import type { PrimaryServer } from './primary.ts'
import { type SessionUse, sessionConfig } from './session.ts'
import { askServer } from './session-server.ts'

/** How long a connection may be idle before it is closed. */
const IDLE_TIMEOUT_MS = 30_000

/** A connection, and what is known about its server once that is verified. Release it after use; with `true`, it is closed. */
export type Connection = VerifiedClient & pg.PoolClient

class VerifiedClient extends pg.Client {
  readonly commit = new CommitWatch(this)
  readonly descriptions: Descriptions = new Map()
  /** The generation of the server in which it was verified. */
  generation = 0

  constructor(config?: pg.ClientConfig) {
    super(config)
    // The pool listens only while a client is idle. Without a listener, an error between two statements would end the process.
    this.on('error', () => {})
  }
}

/** The connections of a pool. pg-pool limits and replaces them; this class keeps them on the server in use. */
export class Connections {
  readonly #server: PrimaryServer | undefined
  readonly #pool: pg.Pool
  readonly #open = new Set<pg.PoolClient>()
  #opened = 0

  constructor(options: DatabaseOptions, session: SessionUse) {
    const { server, limits } = options
    this.#server = server
    this.#pool = new pg.Pool({
      ...sessionConfig(parseAddress(options.url).url, session.options),
      max: options.size,
      connectionTimeoutMillis: limits.connect,
      idleTimeoutMillis: IDLE_TIMEOUT_MS,
      maxLifetimeSeconds: options.lifetimeSeconds,
      Client: VerifiedClient,
      onConnect: async (client) => {
        this.#opened++
        const found = await askServer(client, limits)
        if (session.options !== '' && !found.hasSettings)
          throw new ConnectionFault(
            'settings',
            'the settings of the session did not take effect (ignore_startup_parameters in PgBouncer)',
          )
        if (options.isForUpdates && found.hasLateCommit)
          throw new ConnectionFault('late', 'commits wait for a synchronous standby')
        if (client instanceof VerifiedClient) client.generation = server?.verify(found) ?? 0
      },
    })
    this.#pool.on('connect', (client) => this.#open.add(client))
    this.#pool.on('remove', (client) => this.#open.delete(client))
    // Only the message is passed on, because the error refers to the client, which contains the secret key for canceling.
    this.#pool.on('error', ({ message }, client) => {
      // When the pool has ended, its connections may not have: a server that stops then is no loss.
      if (this.#isCurrent(client) && !this.#pool.ending) options.onConnectionLost(message)
    })
    // The results of statements in progress are not used any more, and the old server may never respond.
    server?.onRenewal(() => {
      for (const { connection } of this.#open) connection.stream.destroy()
    })
  }

  /** The generation of connections that may be used now. */
  get generation(): number {
    return this.#server?.generation ?? 0
  }

  #isCurrent(client: pg.PoolClient): client is Connection {
    return client instanceof VerifiedClient && client.generation === this.generation
  }

  /** Returns a connection to the server in use. Rejects if none is available in time, or if the server must not be used. */
  async take(): Promise<Connection> {
    for (;;) {
      const client = await this.#pool.connect()
      if (this.#isCurrent(client)) return client
      client.release(true)
    }
  }

  statistics(): { used: number; idle: number; waiting: number; opened: number } {
    const { totalCount, idleCount, waitingCount } = this.#pool
    return { used: totalCount - idleCount, idle: idleCount, waiting: waitingCount, opened: this.#opened }
  }

  /** Waits until all connections are released, and closes them. */
  close(): Promise<void> {
    return this.#pool.end()
  }
}
