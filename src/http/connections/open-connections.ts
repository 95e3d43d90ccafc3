import type { Socket } from 'node:net'
import { TransientMap } from '../../collections/transient-map.ts'
import { Connection } from './connection.ts'

/** The open connections of an HTTP server. */
export class OpenConnections implements Iterable<Connection> {
  /** In the order in which they became idle; busy ones are anywhere. */
  readonly #bySocket = new TransientMap<Socket, Connection>()
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
    return this.#bySocket.values()[Symbol.iterator]()
  }

  /** Adds a connection that has been accepted, and removes it when it closes. */
  add(socket: Socket): Connection {
    const connection = new Connection(socket)
    this.#accepted++
    this.#bySocket.set(socket, connection)
    socket.once('close', () => this.#bySocket.delete(socket))
    return connection
  }

  of(socket: Socket): Connection | undefined {
    return this.#bySocket.get(socket)
  }

  /** Records that an open connection has become idle now. */
  setIdle(connection: Connection): void {
    connection.idleSince = performance.now()
    this.#bySocket.delete(connection.socket)
    this.#bySocket.set(connection.socket, connection)
  }

  /** Closes the connection that has been idle for longest, if there is one. */
  closeLongestIdle(): void {
    for (const { isBusy, socket } of this) {
      if (isBusy) continue
      socket.destroy()
      return
    }
  }

  /**
   * Closes connections that have been idle since before `time`, in `performance.now()` time. Unlike Node's own method, it
   * includes connections with an incomplete request. Those that are being closed have a timeout of their own.
   */
  closeIdleSince(time: number): void {
    for (const { isBusy, idleSince, socket } of this) {
      if (!isBusy && idleSince <= time && socket.writable) socket.destroy()
    }
  }
}
