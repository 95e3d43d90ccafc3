import type { IncomingMessage, ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import { setTimeout } from 'node:timers'
import type { ApiError } from '../../contract/errors.ts'

/** How long the client may take to read the last response before the connection is destroyed. */
const CLOSE_TIMEOUT_MS = 1000

/** Maximum rest of a body that is read after an early response, so that the connection can stay open. */
const MAX_DISCARDED_BYTES = 65_536

/** Why a connection ends with an error, after the responses to the requests before it. */
export interface Refusal {
  readonly error: ApiError
  /** For the log. */
  readonly reason: string
}

/** The refusal of a connection, as it was when something on it was refused. */
export interface ConnectionRefusal extends Refusal {
  /** The address of the client. */
  readonly client: string | undefined
  /** The request whose body has the error, or is not complete in time; undefined if the error is elsewhere. */
  readonly request: IncomingMessage | undefined
}

/** A connection of the HTTP server. Its requests are served one at a time, in order. */
export class Connection {
  readonly socket: Socket
  /** The response to the request in flight. */
  current: ServerResponse | undefined
  /** Responses to parsed requests that have not started, oldest first. */
  readonly waiting: ServerResponse[] = []
  /**
   * The newest request, answered or not. Its response is not kept: it refers to the body that it has sent, and an idle
   * connection would keep a whole list in memory.
   */
  newestRequest: IncomingMessage | undefined
  /** When the request in flight could start, or else the oldest waiting one, in `performance.now()` time. */
  readySince = 0
  /** When it was accepted, or became idle after a request, in `performance.now()` time. */
  idleSince = performance.now()
  /** Set once nothing else that arrives is served. */
  refusal: ConnectionRefusal | undefined
  #isPaused = false
  #isStopped = false

  constructor(socket: Socket) {
    this.socket = socket
    // Node resumes the socket whenever a message or its body ends.
    socket.on('resume', () => {
      if (this.#isPaused) socket.pause()
    })
    // Node calls it after the last response. Destroying the socket would reset the connection while the client is still
    // sending, and before it has read that response (RFC 9112, section 9.6).
    socket.destroySoon = () => {
      if (this.newestRequest?.complete !== false) Socket.prototype.destroySoon.call(socket)
      else this.end()
    }
  }

  /** Whether a request is in flight or waiting. */
  get isBusy(): boolean {
    return this.current !== undefined || this.waiting.length > 0
  }

  /**
   * Whether the connection closes after the current response, whose headers are about to be sent. It does if the client
   * has closed its side, if the server is stopping, or if too much of the request would have to be read and discarded. With
   * an Upgrade header, Node's parser discards what it has read beyond the end of the request, which could be the next one.
   */
  closesAfter({ shouldKeepAlive, req }: ServerResponse, isStopping: boolean): boolean {
    if (!shouldKeepAlive) return true
    if (this.waiting.length === 0 && (isStopping || this.socket.readableEnded)) return true
    if (req.complete) return false
    const length = Number(req.headers['content-length'] ?? 0)
    return (
      req.headers['transfer-encoding'] !== undefined ||
      length > MAX_DISCARDED_BYTES ||
      (length > 0 && req.headers.upgrade !== undefined)
    )
  }

  /** Stops reading until `resumeReading`. What has been read may contain further requests. */
  pauseReading(): void {
    if (this.#isPaused) return
    this.#isPaused = true
    this.socket.pause()
  }

  resumeReading(): void {
    if (!this.#isPaused || this.#isStopped) return
    this.#isPaused = false
    this.socket.resume()
  }

  /** Stops reading for good. */
  stopReading(): void {
    this.#isStopped = true
    this.pauseReading()
  }

  /** Closes the connection after everything that was written to it, and after `last`, without reading any more. */
  end(last = ''): void {
    this.stopReading()
    this.socket.end(last)
    setTimeout(() => this.socket.destroy(), CLOSE_TIMEOUT_MS).unref()
  }
}
