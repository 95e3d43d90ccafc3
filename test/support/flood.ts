import { connect, type Socket } from 'node:net'
import type { Test } from 'tap'

export interface FloodOptions {
  readonly port: number
  readonly connections: number
  /** How many copies of the request each connection sends at once, without waiting for answers. */
  readonly pipelined: number
  /** The bytes of one request. */
  readonly request: string
}

/** Clients that pipeline requests without end. */
export interface Flood {
  /** How many answers came so far. */
  readonly answers: number
  stop(): void
}

/** What every answer begins with, and no body contains. */
const ANSWER = 'HTTP/1.1 '

/** Starts the clients. Each sends all of its requests again when all are answered or its connection is closed. */
export function startFlood(t: Test, { port, connections, pipelined, request }: FloodOptions): Flood {
  const bytes = request.repeat(pipelined)
  const open = new Set<Socket>()
  let answers = 0
  let isStopped = false

  const run = (): void => {
    if (isStopped) return
    const socket = connect({ host: '127.0.0.1', port })
    open.add(socket)
    let pending = pipelined
    let tail = ''
    socket.on('error', () => {})
    socket.on('connect', () => socket.write(bytes))
    socket.on('data', (chunk: Buffer) => {
      const text = tail + chunk.toString('latin1')
      const count = text.split(ANSWER).length - 1
      tail = text.slice(1 - ANSWER.length)
      answers += count
      pending -= count
      if (pending > 0) return
      pending += pipelined
      socket.write(bytes)
    })
    socket.on('close', () => {
      open.delete(socket)
      run()
    })
  }
  for (let count = 0; count < connections; count++) run()

  const stop = (): void => {
    isStopped = true
    for (const socket of open) socket.destroy()
  }
  t.teardown(stop)
  return {
    get answers() {
      return answers
    },
    stop,
  }
}
