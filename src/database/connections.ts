import pg from 'pg'
import { parseAddress } from './address.ts'
import { CommitWatch } from './commit-warnings.ts'
import { ConnectionFault } from './errors.ts'
import type { DatabaseOptions } from './pool-options.ts'
import type { PrimaryServer } from './primary.ts'
import { type SessionUse, sessionConfig } from './session.ts'
import { askServer } from './session-server.ts'

/** How long a connection may be idle before it is closed. */
const IDLE_TIMEOUT_MS = 30_000

/** How long a connection is used, unless the options say it. */
const LIFETIME_SECONDS = 1800

/** An open connection, and what is known about it. */
export interface Connection {
  /** Release it after use; with `true`, it is closed. */
  readonly client: pg.PoolClient
  readonly commit: CommitWatch
  /** The generation of the server in which it was verified. */
  readonly generation: number
  /** The server process, unless there is a connection pooler. */
  readonly pid: number
}

/** A client whose time for connecting includes the verification of its server. */
class TimedClient extends pg.Client {
  readonly createdAt = performance.now()
}

/** The connections of a pool. pg-pool limits and replaces them; this class keeps them on the server in use. */
export class Connections {
  readonly #server: PrimaryServer | undefined
  readonly #pool: pg.Pool
  readonly #verified = new WeakMap<pg.ClientBase, Pick<Connection, 'generation' | 'pid'>>()
  readonly #open = new Map<pg.ClientBase, Connection>()
  #opened = 0

  constructor(options: DatabaseOptions, session: SessionUse) {
    const { server, limits } = options
    this.#server = server
    this.#pool = new pg.Pool({
      ...sessionConfig(parseAddress(options.url).url, session.options),
      max: options.size,
      connectionTimeoutMillis: limits.connect,
      idleTimeoutMillis: IDLE_TIMEOUT_MS,
      maxLifetimeSeconds: options.lifetimeSeconds ?? LIFETIME_SECONDS,
      Client: TimedClient,
      onConnect: async (client) => {
        this.#opened++
        const since = client instanceof TimedClient ? client.createdAt : performance.now()
        const found = await askServer(client, Math.max(1, since + limits.connect - performance.now()))
        if (session.options !== '' && !found.hasSettings)
          throw new ConnectionFault(
            'settings',
            'the settings of the session did not take effect (ignore_startup_parameters in PgBouncer)',
          )
        this.#verified.set(client, { pid: found.pid, generation: server?.verify(found) ?? 0 })
      },
    })
    this.#pool.on('connect', (client) => {
      // The pool listens only while a client is idle. Without a listener, an error between two statements would end the process.
      client.on('error', () => {})
      const { generation = 0, pid = 0 } = this.#verified.get(client) ?? {}
      this.#open.set(client, { client, commit: new CommitWatch(client), generation, pid })
    })
    this.#pool.on('remove', (client) => this.#open.delete(client))
    // Only the message is passed on, because the error refers to the client, which contains the secret key for canceling.
    this.#pool.on('error', ({ message }, client) => {
      if (this.#verified.get(client)?.generation === this.generation) options.onConnectionLost(message)
    })
    // The results of statements in progress are not used any more, and the old server may never respond.
    server?.onRenewal(() => {
      for (const { client } of this.#open.values()) client.connection.stream.destroy()
    })
  }

  /** The generation of connections that may be used now. */
  get generation(): number {
    return this.#server?.generation ?? 0
  }

  /** Returns a connection to the server in use. Rejects if none is available in time, or if the server must not be used. */
  async take(): Promise<Connection> {
    for (;;) {
      const refusal = this.#pool.idleCount === 0 ? this.#server?.refusal : undefined
      if (refusal !== undefined) throw refusal
      const client = await this.#pool.connect()
      const connection = this.#open.get(client)
      if (connection?.generation === this.generation) return connection
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
