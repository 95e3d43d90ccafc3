import type { Socket } from 'node:net'
import type pg from 'pg'

declare module 'pg' {
  interface Connection {
    /** Parses what the server sends, in a listener of the socket. */
    attachListeners(stream: Socket): void
  }
}

/**
 * Makes each error of a login an error of `connect`, which closes the connection. pg's parser throws at a method of authentication that
 * it does not know, which would end the process. It keeps the socket open if it has no password, for example, so that the server
 * would keep a process for each attempt until its `authentication_timeout`.
 */
export function failOnLoginError({ connection }: pg.Client): void {
  const attachListeners = connection.attachListeners.bind(connection)
  connection.attachListeners = (stream) => {
    attachListeners(stream)
    const parsers = stream.listeners('data')
    stream.removeAllListeners('data')
    stream.on('data', (bytes) => {
      try {
        for (const parse of parsers) parse.call(stream, bytes)
      } catch (error) {
        connection.emit('error', error)
      }
    })
  }
  connection.on('error', () => connection.stream.destroy())
}
