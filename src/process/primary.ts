import type { SharedPort } from '../http/connections/graceful-stop.ts'
import type { SharedReadiness } from '../http/health.ts'
import { ProcessRequests } from './process-requests.ts'

/** How long to wait for a reply of the primary; longer than it waits for its workers. */
const REPLY_TIMEOUT_MS = 2000

/** The primary process, as a worker sees it: it knows the state of the other workers. */
export type Primary = SharedPort & SharedReadiness

/** Connects this worker to its primary process. Call it once. */
export function connectToPrimary(): Primary {
  let check: () => Promise<string | undefined> = async () => 'The service is starting.'
  const send = (message: object): void => {
    if (process.connected) process.send?.(message, undefined, undefined, () => {})
  }
  const requests = new ProcessRequests(send, { readiness: () => check() })
  process.on('message', (message) => requests.receive(message))
  const ask = (request: string): Promise<string | undefined> => requests.ask(request, REPLY_TIMEOUT_MS)
  // A worker must be able to stop if the primary hangs or has exited.
  const waitFor = async (request: string): Promise<void> => {
    await ask(request).catch(() => undefined)
  }
  return {
    delivered: () => waitFor('delivered'),
    closed: () => waitFor('closed'),
    readiness: () => ask('readiness').catch(() => 'The primary process does not reply.'),
    registerReadiness(ownCheck) {
      check = ownCheck
    },
  }
}
