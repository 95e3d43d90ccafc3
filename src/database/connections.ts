import pg from 'pg'
import { removeItem } from '../collections/remove-item.ts'
import { CommitWatch } from './commit-warnings.ts'
import { isReadOnly } from './failures.ts'
import type { PrimaryServer } from './primary.ts'

/** How long a connection may be idle before it is closed. */
const IDLE_TIMEOUT_MS = 30_000

/** Interval between the checks for idle connections to close. */
const SWEEP_MS = 1000

export interface ConnectionOptions {
  readonly config: pg.ClientConfig
  /** Absent if a connection to any server is allowed. */
  readonly server: PrimaryServer | undefined
  /** Maximum connections. */
  readonly size: number
  /** How long a caller waits for a connection. */
  readonly connectMs: number
  /** How long a connection is used before it is closed. */
  readonly lifetimeSeconds: number
  /** Called with the reason when an idle connection is lost. */
  readonly onConnectionLost: (reason: string) => void
}

/** An open connection, and what is known about it. */
export interface PooledConnection {
  readonly client: pg.Client
  readonly commit: CommitWatch
  /** The generation of the server in which it was verified. */
  readonly generation: number
  /** When it is closed, in `performance.now()` time. */
  readonly expiresAt: number
  idleSince: number
  /** Why it was lost; undefined while it can be used. */
  lost: string | undefined
}

/** A free place of the pool: an idle connection, or undefined for the right to open one. */
type Place = PooledConnection | undefined

/**
 * The connections of a pool. If there is a `server`, it verifies each new connection before its first use; connections of older generations are closed.
 */
export class Connections {
  readonly #options: ConnectionOptions
  /** The last one is taken first: the idle connection that was used last. */
  readonly #free: Place[]
  readonly #waiting: ((place: Place) => void)[] = []
  /** The connections that a renewal closes: all but those that are being verified. */
  readonly #clients = new Set<pg.Client>()
  readonly #sweepTimer: NodeJS.Timeout
  #opened = 0
  #onClosed: (() => void) | undefined

  constructor(options: ConnectionOptions) {
    this.#options = options
    this.#free = Array.from({ length: options.size }, () => undefined)
    this.#sweepTimer = setInterval(() => this.#sweep(), SWEEP_MS).unref()
    options.server?.onRenewal(() => this.#renew())
  }

  /** Returns an idle connection; undefined if there is none. */
  takeIdle(): PooledConnection | undefined {
    const connection = this.#free.at(-1)
    if (connection !== undefined) this.#free.pop()
    return connection
  }

  /**
   * Returns an idle connection or a new one; waits if all are in use. Rejects if no connection is available within
   * `connectMs`, or if the server must not be used.
   */
  async take(): Promise<PooledConnection> {
    if (this.#onClosed !== undefined) throw new Error('the pool is closed')
    const deadline = performance.now() + this.#options.connectMs
    const hasToWait = this.#free.length === 0
    const connection = hasToWait ? await this.#wait() : this.#free.pop()
    if (connection !== undefined) return connection
    try {
      return await this.#open(deadline)
    } catch (error) {
      this.#give(undefined)
      throw error
    }
  }

  /** Releases a connection for the next statement, or closes it if it is broken, expired or of an older generation. */
  release(connection: PooledConnection, isBroken: boolean): void {
    const { server, onConnectionLost } = this.#options
    const { client, lost, generation, expiresAt } = connection
    connection.idleSince = performance.now()
    // PostgreSQL can end a connection right after a response, before its caller continues.
    if (lost !== undefined && !isBroken) onConnectionLost(lost)
    const isUsable = !isBroken && lost === undefined && this.#onClosed === undefined
    if (isUsable && generation === (server?.generation ?? 0) && connection.idleSince < expiresAt) {
      this.#give(connection)
      return
    }
    this.#end(client)
    this.#give(undefined)
  }

  statistics(): { used: number; idle: number; waiting: number; opened: number } {
    return {
      used: this.#options.size - this.#free.length,
      idle: this.#free.filter((place) => place !== undefined).length,
      waiting: this.#waiting.length,
      opened: this.#opened,
    }
  }

  /** Waits until all connections are released, and closes them. */
  close(): Promise<void> {
    clearInterval(this.#sweepTimer)
    this.#endIdle(() => true)
    return new Promise((resolve) => {
      this.#onClosed = resolve
      if (this.#free.length === this.#options.size) resolve()
    })
  }

  #wait(): Promise<Place> {
    return new Promise((resolve, reject) => {
      const waiter = (place: Place): void => {
        clearTimeout(timer)
        resolve(place)
      }
      const timer = setTimeout(() => {
        removeItem(this.#waiting, waiter)
        reject(new Error('all connections were in use for too long'))
      }, this.#options.connectMs)
      this.#waiting.push(waiter)
    })
  }

  /** Gives a place to the caller that has waited longest. */
  #give(place: Place): void {
    const waiter = this.#waiting.shift()
    if (waiter !== undefined) waiter(place)
    else if (place !== undefined) this.#free.push(place)
    else this.#free.unshift(undefined)
    if (this.#free.length === this.#options.size) this.#onClosed?.()
  }

  async #open(deadline: number): Promise<PooledConnection> {
    const { server } = this.#options
    if (server === undefined) return this.#connect(deadline)
    for (;;) {
      // Read once: a refusal expires.
      const { generation, refusal } = server
      if (refusal !== undefined) throw refusal
      try {
        return await this.#connect(deadline)
      } catch (error) {
        // The address may have led to another server when this attempt began.
        if (server.generation !== generation && !isReadOnly(error) && performance.now() < deadline) continue
        if (isReadOnly(error)) server.refuse(error)
        throw error
      }
    }
  }

  /** Opens a connection before the time `end`, and verifies its server. */
  async #connect(end: number): Promise<PooledConnection> {
    const { server, config, lifetimeSeconds } = this.#options
    const remainingMs = (): number => Math.max(1, end - performance.now())
    const client = new pg.Client({ ...config, connectionTimeoutMillis: remainingMs() })
    let connection: PooledConnection | undefined
    // pg reports here what happens between two statements. Only the message is passed on, because the error may refer to the
    // client, which contains the secret key for canceling its statements.
    client.on('error', ({ message }) => connection && this.#lose(connection, message))
    try {
      this.#clients.add(client)
      await client.connect()
      this.#clients.delete(client)
      this.#opened++
      const generation = (await server?.verify(client, remainingMs())) ?? 0
      this.#clients.add(client)
      const now = performance.now()
      const expiresAt = now + lifetimeSeconds * 1000
      const commit = new CommitWatch(client)
      connection = { client, commit, generation, expiresAt, idleSince: now, lost: undefined }
      return connection
    } catch (error) {
      this.#end(client)
      throw error
    }
  }

  #lose(connection: PooledConnection, reason: string): void {
    connection.lost = reason
    const [lost] = this.#endIdle((idle) => idle === connection)
    if (lost !== undefined) this.#options.onConnectionLost(reason)
  }

  /** Closes idle connections that are too old, or that were not needed for a while. */
  #sweep(): void {
    const now = performance.now()
    this.#endIdle(({ expiresAt, idleSince }) => now >= expiresAt || now >= idleSince + IDLE_TIMEOUT_MS)
  }

  #renew(): void {
    // The results of statements in progress are not used any more, and the old server may never respond.
    for (const { connection } of this.#clients) connection.stream.destroy()
    this.#endIdle(() => true)
  }

  /** Closes the idle connections that match, and returns them. */
  #endIdle(matches: (connection: PooledConnection) => boolean): PooledConnection[] {
    const ended = this.#free.filter((place) => place !== undefined).filter(matches)
    for (const connection of ended) {
      this.#end(connection.client)
      removeItem(this.#free, connection)
      this.#free.unshift(undefined)
    }
    return ended
  }

  #end(client: pg.Client): void {
    this.#clients.delete(client)
    void client.end()
  }
}
