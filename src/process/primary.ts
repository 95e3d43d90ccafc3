import type { SharedPort } from '../http/connections/graceful-stop.ts'
import type { SharedReadiness } from '../http/health.ts'
import { ProcessRequests } from './process-requests.ts'

/** How long the primary has to reply, in milliseconds: longer than it waits for all of its workers. */
const REPLY_TIMEOUT_MS = 2000

/** What a worker learns from the primary about the other workers. */
export type Primary = SharedPort & SharedReadiness

/** Connects this worker with its primary. To be called once. */
export function connectToPrimary(): Primary {
  let check: () => Promise<string | undefined> = async () => 'The service is starting.'
  const send = (message: object): void => {
    if (process.connected) process.send?.(message, undefined, undefined, () => {})
  }
  const requests = new ProcessRequests(send, { readiness: () => check() })
  process.on('message', (message) => requests.receive(message))
  const ask = (request: string): Promise<string | undefined> => requests.ask(request, REPLY_TIMEOUT_MS)
  // A primary that is stuck or gone must not keep a worker from stopping.
  const waitFor = async (request: string): Promise<void> => {
    await ask(request).catch(() => undefined)
  }
  return {
    delivered: () => waitFor('delivered'),
    closed: () => waitFor('closed'),
    readiness: () => ask('readiness').catch(() => 'The primary process does not reply.'),
    reportReadiness(own) {
      check = own
    },
  }
}
