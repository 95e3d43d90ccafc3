import { listLimits, probeLimits, requestLimits } from '../../src/database/time-limits.ts'
import { appTimeouts } from '../../src/http/app.ts'

/** Ten minutes: however busy a machine is, only what hangs reaches it. */
const LONG_MS = 600_000

const long = { connect: LONG_MS, statement: LONG_MS, answer: 2 * LONG_MS }

/** The time limits of tests. A statement still gives up a locked row as soon as in production. */
export const longLimits = {
  requests: { ...requestLimits, ...long },
  lists: { ...listLimits, ...long, lock: LONG_MS },
  probe: { ...probeLimits, ...long },
  app: {
    arrivalMs: LONG_MS,
    stallMs: LONG_MS,
    // No load balancer has to notice that the service stops.
    drainMs: 0,
    closeGraceMs: 500,
    updates: { ...appTimeouts.updates, wait: LONG_MS },
  },
}

/** With as much time for locks: nothing but the test ends a wait. */
export const endlessLimits = { requests: { ...longLimits.requests, lock: LONG_MS } }

/** For an update that cannot be served: twice as long as in production, so that a busy machine serves the others meanwhile. */
export const shortWaits = {
  app: { ...longLimits.app, updates: { ...appTimeouts.updates, wait: 2 * appTimeouts.updates.wait } },
}
