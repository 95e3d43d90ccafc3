import type { Socket } from 'node:net'
import { TransientMap } from '../../collections/transient-map.ts'
import { Connection } from './connection.ts'

/** The open connections of an HTTP server. */
export class OpenConnections implements Iterable<Connection> {
  readonly #bySocket = new Map<Socket, Connection>()
  /** Connections without a request, longest idle first, and since when, in `performance.now()` time. */
  readonly #idle = new TransientMap<Connection, number>()
  #accepted = 0

  /** Number of open connections. */
  get size(): number {
    return this.#bySocket.size
  }

  /** Number of connections accepted so far. */
  get accepted(): number {
    return this.#accepted
  }

  [Symbol.iterator](): Iterator<Connection> {
    return this.#bySocket.values()
  }

  /** Adds a connection that has been accepted, and removes it when it closes. */
  add(socket: Socket): Connection {
    const connection = new Connection(socket)
    this.#accepted++
    this.#bySocket.set(socket, connection)
    this.setIdle(connection)
    socket.once('close', () => {
      this.#bySocket.delete(socket)
      this.#idle.delete(connection)
    })
    return connection
  }

  of(socket: Socket): Connection | undefined {
    return this.#bySocket.get(socket)
  }

  setBusy(connection: Connection): void {
    this.#idle.delete(connection)
  }

  setIdle(connection: Connection): void {
    this.#idle.set(connection, performance.now())
  }

  /** Closes the connection that has been idle for longest, if there is one. */
  closeLongestIdle(): void {
    const [longestIdle] = this.#idle.keys()
    longestIdle?.socket.destroy()
  }

  /**
   * Closes connections that have been idle since before `time`, in `performance.now()` time. Unlike Node's own method, it
   * includes connections with an incomplete request.
   */
  closeIdleSince(time: number): void {
    for (const [{ socket }, idleSince] of this.#idle) {
      if (idleSince > time) return
      socket.destroy()
    }
  }
}
