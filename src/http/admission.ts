import type { Server } from 'node:http'
import { setImmediate } from 'node:timers'
import type { FastifyInstance, HookHandlerDoneFunction } from 'fastify'
import { serviceUnavailable } from '../errors.ts'

/**
 * The most requests that are begun in one turn of the event loop, and in one in which a connection was accepted. Node
 * accepts one connection in each turn, so a turn in which a thousand requests are served makes new callers wait as long
 * as a thousand requests take, each of them, `/livez` among them.
 */
const TURN = 64
const TURN_WITH_NEWCOMERS = 8

/** How long a request may wait for its turn, in milliseconds. */
const LONGEST_WAIT = 1000

/** The most requests that wait for their turn or for their outcome, which bounds what they take of memory. */
const CAPACITY = 10_000

interface Waiting {
  readonly since: number
  readonly begin: HookHandlerDoneFunction
}

/**
 * Lets the requests of `scope` begin in the order in which they came, as many at a time as leave the event loop free
 * for everything else. A request that has waited for too long, or comes when there are too many, fails with a 503
 * ApiError. To be called before anything else in the scope has work to do.
 */
export function admitInTurns(scope: FastifyInstance): void {
  const waiting = new Set<Waiting>()
  /** Every request adds one when it comes, and takes it away when it is answered. */
  let open = 0
  let begun = 0
  let isTurnEnding = false
  let hasNewcomers = false

  const limit = (): number => (hasNewcomers ? TURN_WITH_NEWCOMERS : TURN)

  const endTurn = (): void => {
    isTurnEnding = false
    begun = 0
    const tooLate = performance.now() - LONGEST_WAIT
    for (const request of waiting) {
      if (begun === limit()) break
      waiting.delete(request)
      begun++
      request.begin(
        request.since < tooLate
          ? serviceUnavailable('The service is too busy. Try again shortly.')
          : undefined,
      )
    }
    hasNewcomers = false
    if (begun > 0) scheduleEndOfTurn()
  }

  const scheduleEndOfTurn = (): void => {
    if (isTurnEnding) return
    isTurnEnding = true
    setImmediate(endTurn)
  }

  const server: Server = scope.server
  server.on('connection', () => {
    hasNewcomers = true
  })

  scope.addHook('onRequest', (_request, reply, done) => {
    open++
    if (open > CAPACITY) {
      done(serviceUnavailable('Too many requests are under way. Try again shortly.'))
      return
    }
    scheduleEndOfTurn()
    if (waiting.size === 0 && begun < limit()) {
      begun++
      done()
      return
    }
    const request = { since: performance.now(), begin: done }
    waiting.add(request)
    reply.raw.once('close', () => {
      if (waiting.delete(request)) open--
    })
  })
  // Not when the response has closed: what was begun goes on, and takes its place, when its caller has gone away.
  scope.addHook('onSend', (_request, _reply, payload, done) => {
    open--
    done(null, payload)
  })
}
