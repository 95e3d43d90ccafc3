import { Socket } from 'node:net'
import pg from 'pg'
import { removeItem } from '../../collections/remove-item.ts'
import { ServerChangedError } from '../errors/errors.ts'
import { isReadOnly, isRefusal } from '../errors/failures.ts'
import { noUsableHost } from '../server/no-usable-host.ts'
import type { PrimaryServer } from '../server/primary.ts'

/** How long a connection may be idle in pg's pool before it is closed. */
const IDLE_TIMEOUT_MS = 30_000

/** How long connections are kept for the next statement before the kept one is released to pg's pool. */
const KEEP_MS = 1000

/** One of the hosts that connections may go to. */
export interface ConnectionHost {
  /** Host and port, for messages. */
  readonly name: string
  readonly config: pg.ClientConfig
}

export interface ConnectionOptions {
  /** The hosts, in the order of the address. */
  readonly hosts: readonly ConnectionHost[]
  /** Absent if a connection to any server is allowed. */
  readonly server: PrimaryServer | undefined
  /** Maximum connections. */
  readonly size: number
  /** How long a caller waits for a connection. */
  readonly connectMs: number
  /** Maximum part of `connectMs` for a single host. */
  readonly hostConnectMs: number
  /** How long a connection is used before it is closed. */
  readonly lifetimeSeconds: number
  /** Called with the reason when an idle connection is lost. */
  readonly onConnectionLost: (reason: string) => void
}

/**
 * The connections of a pool. If there is a `server`, it verifies each new connection before its first use; if the connection
 * must not be used, the next host is tried. Connections of older generations are closed.
 */
export class Connections {
  readonly #hosts: readonly ConnectionHost[]
  readonly #server: PrimaryServer | undefined
  readonly #size: number
  readonly #connectMs: number
  readonly #hostConnectMs: number
  readonly #onConnectionLost: (reason: string) => void
  readonly #pool: pg.Pool
  /** The sockets of connections that are being opened. */
  readonly #connecting = new Set<Socket>()
  readonly #busy: pg.PoolClient[] = []
  /** Why connections were lost while they were in use. */
  readonly #lost = new WeakMap<pg.PoolClient, string>()
  #kept: pg.PoolClient | undefined
  #keepTimer: NodeJS.Timeout | undefined
  #opened = 0
  #isClosing = false

  constructor(options: ConnectionOptions) {
    const { hosts, server, size, connectMs, hostConnectMs, lifetimeSeconds, onConnectionLost } = options
    this.#hosts = hosts
    this.#server = server
    this.#size = size
    this.#connectMs = connectMs
    this.#hostConnectMs = hostConnectMs
    this.#onConnectionLost = onConnectionLost
    const connecting = this.#connecting
    this.#pool = new pg.Pool({
      Client: class extends pg.Client {
        constructor() {
          const socket = new Socket()
          super({ ...hosts[server?.host ?? 0]?.config, stream: () => socket })
          connecting.add(socket)
          socket.once('close', () => connecting.delete(socket))
          this.once('connect', () => connecting.delete(socket))
        }
      },
      max: size,
      connectionTimeoutMillis: connectMs,
      idleTimeoutMillis: IDLE_TIMEOUT_MS,
      maxLifetimeSeconds: lifetimeSeconds,
    })
    // Without a listener, an idle connection that breaks would crash the process. Only the message is passed on, because the
    // error refers to the client, which contains the secret key for canceling its statements.
    this.#pool.on('error', ({ message }) => onConnectionLost(message))
    this.#pool.on('connect', (client) => {
      this.#opened++
      // pg's pool does not handle errors of a checked-out connection, which may break between two statements.
      client.on('error', ({ message }) => this.#lose(client, message))
    })
    // The results of statements in progress are not used any more, and the old server may never respond.
    server?.onRenewal(() => {
      for (const client of this.#busy) void client.end()
      for (const socket of connecting) socket.destroy()
    })
  }

  /** Returns the connection that is kept for the next statement, or undefined if there is none that can be used. */
  takeKept(): pg.PoolClient | undefined {
    const client = this.#kept
    if (client === undefined) return undefined
    this.#kept = undefined
    if (this.#isCurrent(client)) {
      this.#busy.push(client)
      return client
    }
    client.release(true)
    return undefined
  }

  /**
   * Returns an idle connection or a new one; waits if the pool is exhausted. Rejects if no connection is available within
   * `connectMs`, or if no host can be used.
   */
  async take(): Promise<pg.PoolClient> {
    const kept = this.takeKept()
    if (kept !== undefined) return kept
    const client = await this.#checkOut()
    this.#busy.push(client)
    return client
  }

  /** Releases a connection, and closes it if it is broken or of an older generation. */
  release(client: pg.PoolClient, isBroken: boolean): void {
    removeItem(this.#busy, client)
    client.release(isBroken || !this.#isCurrent(client))
  }

  /**
   * Releases a connection whose statement has succeeded, and keeps it for the next statement, because checking it out of pg's
   * pool and releasing it takes a third as long as a statement. Every `KEEP_MS`, the kept connection is released to pg's pool,
   * which closes connections that are idle or have reached the end of their lifetime.
   */
  keep(client: pg.PoolClient): void {
    // PostgreSQL can end a connection right after a response, before its caller continues.
    const lost = this.#lost.get(client)
    if (lost !== undefined) {
      this.release(client, true)
      this.#onConnectionLost(lost)
      return
    }
    const isKeeping = this.#keepTimer !== undefined
    this.#keepTimer ??= setTimeout(() => this.#stopKeeping(), KEEP_MS).unref()
    if (!isKeeping || this.#kept !== undefined || this.#isClosing || this.#pool.waitingCount > 0) {
      this.release(client, false)
      return
    }
    removeItem(this.#busy, client)
    this.#kept = client
  }

  statistics(): { used: number; idle: number; waiting: number; opened: number } {
    const idle = this.#pool.idleCount + (this.#kept === undefined ? 0 : 1)
    return {
      used: this.#pool.totalCount - idle,
      idle,
      waiting: this.#pool.waitingCount,
      opened: this.#opened,
    }
  }

  /** Waits until all connections are released, then closes them. */
  close(): Promise<void> {
    this.#isClosing = true
    this.#stopKeeping()
    return this.#pool.end()
  }

  #isCurrent(client: pg.PoolClient): boolean {
    return this.#server === undefined || this.#server.isCurrent(client)
  }

  #stopKeeping(): void {
    clearTimeout(this.#keepTimer)
    this.#keepTimer = undefined
    const client = this.#kept
    this.#kept = undefined
    if (client !== undefined) this.release(client, false)
  }

  #lose(client: pg.PoolClient, reason: string): void {
    if (client !== this.#kept) {
      this.#lost.set(client, reason)
      return
    }
    this.#kept = undefined
    client.release(true)
    this.#onConnectionLost(reason)
  }

  async #checkOut(): Promise<pg.PoolClient> {
    const server = this.#server
    if (server === undefined) return this.#pool.connect()
    const deadline = performance.now() + this.#connectMs
    const failed: { host: string; error: unknown }[] = []
    for (;;) {
      const isNew = this.#pool.idleCount === 0 && this.#pool.totalCount < this.#size
      // Read once: a refusal expires.
      const { host, generation, refusal } = server
      if (isNew && failed.length === 0 && refusal !== undefined) throw refusal
      const start = performance.now()
      try {
        const client = await this.#pool.connect()
        if (server.isCurrent(client)) return client
        if (server.isKnown(client)) {
          client.release(true)
          if (performance.now() < deadline) continue
          throw new ServerChangedError()
        }
        // A caller that had to wait tries no other host, so it has all of the remaining time.
        const end = isNew ? start + this.#hostConnectMs : deadline
        await verifyOrClose(server, client, host, Math.max(1, end - performance.now()))
        return client
      } catch (error) {
        // The address may have led to another server when this attempt began.
        if (server.generation !== generation && !isReadOnly(error) && performance.now() < deadline) continue
        if (!isNew || isRefusal(error)) throw error
        failed.push({ host: this.#hosts[host]?.name ?? '', error })
        server.skip(host)
        if (failed.length < this.#hosts.length) continue
        const reason = noUsableHost(failed)
        if (isReadOnly(reason)) server.refuse(reason)
        throw reason
      }
    }
  }
}

async function verifyOrClose(
  server: PrimaryServer,
  client: pg.PoolClient,
  host: number,
  limitMs: number,
): Promise<void> {
  try {
    await server.verify(client, host, limitMs)
  } catch (error) {
    client.release(true)
    throw error
  }
}
