import { Socket } from 'node:net'
import pg from 'pg'
import type { DatabaseAddress } from './address.ts'
import { isReadOnly, isRefusal, ServerChangedError } from './failures.ts'
import { noUsableHost } from './hosts.ts'

/** How long a connection may be idle before it is closed. */
const IDLE_TIMEOUT_MS = 30_000

/** How long connections are kept for the next statement before one is released to pg's pool. */
const KEEP_MS = 1000

/**
 * Decides which server a pool's connections are on. Every new connection is verified before its first use. Connections
 * belong to a generation, and those of an older one are not used again.
 */
export interface VerifiedServer {
  readonly address: DatabaseAddress
  /** Which of the address's hosts new connections go to. */
  readonly host: number
  readonly generation: number
  /** Calls `listener` at the beginning of every generation. */
  onRenewal(listener: () => void): void
  /** True where the connection was verified and may be used. */
  isCurrent(client: pg.ClientBase): boolean
  /** True where the connection was verified, in this generation or an older one. */
  isKnown(client: pg.ClientBase): boolean
  /** Verifies a new connection; rejects where it is on a server that may not be used. */
  verify(client: pg.ClientBase, limitMs: number): Promise<void>
  /** Gives up every connection. */
  renew(reason: string): void
  /** Has new connections go to the next host, unless they go to another than this one already. */
  skip(host: number): void
  /** Remembers that no host could be used. */
  refuse(error: unknown): void
  /** Why no host could be used a moment ago; undefined where it is worth another try. */
  readonly refusal: unknown
}

/** One of the hosts that connections may go to. */
export interface ConnectionHost {
  /** Host and port, for messages. */
  readonly name: string
  readonly config: pg.ClientConfig
}

export interface ConnectionOptions {
  /** In the order of the address. */
  readonly hosts: readonly ConnectionHost[]
  /** Absent if a connection to any server is allowed. */
  readonly server: VerifiedServer | undefined
  /** Maximum connections. */
  readonly size: number
  /** How long a caller waits for a connection, and how long one host may take of that. */
  readonly connectMs: number
  readonly hostConnectMs: number
  /** How long a connection is used. */
  readonly lifetimeSeconds: number
  /** Called with the reason when an idle connection is lost. */
  readonly onConnectionLost: (reason: string) => void
}

/**
 * The connections of a pool. Each one that `take` returns is on the verified server: a new one is verified first, at each host
 * until one can be used, and connections of older generations are closed.
 */
export class Connections {
  readonly #hosts: readonly ConnectionHost[]
  readonly #server: VerifiedServer | undefined
  readonly #size: number
  readonly #connectMs: number
  readonly #hostConnectMs: number
  readonly #onConnectionLost: (reason: string) => void
  readonly #pool: pg.Pool
  /** The sockets of connections that are being opened. */
  readonly #connecting = new Set<Socket>()
  readonly #busy = new Set<pg.PoolClient>()
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
    // Without a listener, an idle connection that breaks would end the process.
    // Only the message is passed on: the error refers to the client, with the key to cancel its statements.
    this.#pool.on('error', ({ message }) => onConnectionLost(message))
    this.#pool.on('connect', (client) => {
      this.#opened++
      // pg's pool does not listen while a connection is checked out, and it may break between two statements.
      client.on('error', ({ message }) => this.#dropKept(client, message))
    })
    // The results of their statements are of no use, and the server may not respond any more.
    server?.onRenewal(() => {
      for (const client of this.#busy) void client.end()
      for (const socket of connecting) socket.destroy()
    })
  }

  /** Returns the connection that was kept for the next statement, or undefined if none can be used. */
  takeKept(): pg.PoolClient | undefined {
    const client = this.#kept
    if (client === undefined) return undefined
    this.#kept = undefined
    if (this.#isCurrent(client)) {
      this.#busy.add(client)
      return client
    }
    client.release(true)
    return undefined
  }

  /** Returns a connection; waits for one if none is idle. */
  async take(): Promise<pg.PoolClient> {
    const client = this.takeKept() ?? (await this.#checkOut())
    this.#busy.add(client)
    return client
  }

  /** Releases a connection. One that is broken or of an older generation is closed. */
  release(client: pg.PoolClient, isBroken: boolean): void {
    this.#busy.delete(client)
    client.release(isBroken || !this.#isCurrent(client))
  }

  /**
   * Releases a connection that works, and keeps it for the next statement, because checking one out of pg's pool and
   * releasing it costs a third of a statement. Every `KEEP_MS` one is released to that pool, which closes connections that
   * are idle or at the end of their lifetime.
   */
  keep(client: pg.PoolClient): void {
    const isKeeping = this.#keepTimer !== undefined
    this.#keepTimer ??= setTimeout(() => this.#stopKeeping(), KEEP_MS).unref()
    if (!isKeeping || this.#kept !== undefined || this.#isClosing || this.#pool.waitingCount > 0) {
      this.release(client, false)
      return
    }
    this.#busy.delete(client)
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

  #dropKept(client: pg.PoolClient, reason: string): void {
    if (client !== this.#kept) return
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
      if (isNew && failed.length === 0 && server.refusal !== undefined) throw server.refusal
      const { host, generation } = server
      const start = performance.now()
      try {
        const client = await this.#pool.connect()
        if (server.isCurrent(client)) return client
        if (server.isKnown(client)) {
          client.release(true)
          if (performance.now() < deadline) continue
          throw new ServerChangedError()
        }
        try {
          await server.verify(client, Math.max(1, this.#hostConnectMs - (performance.now() - start)))
          return client
        } catch (error) {
          client.release(true)
          throw error
        }
      } catch (error) {
        // The address may have resolved to another server when this attempt began.
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
