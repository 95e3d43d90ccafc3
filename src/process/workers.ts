import cluster, { type Address, type Worker } from 'node:cluster'
import { once } from 'node:events'
import { setImmediate, setTimeout } from 'node:timers/promises'
import type { Logger } from 'pino'
import { StartUpError } from '../config/errors.ts'
import { urlOf } from '../http/connections/listen-address.ts'
import { coalesceChecks, SHUTTING_DOWN } from '../http/health.ts'
import { ProcessRequests } from './process-requests.ts'

/** Delay before a worker that exited is restarted, so that one that crashes at start is not restarted in a busy loop. */
const RESTART_DELAY_MS = 1000

/** How long to wait for a worker's readiness report. Its check of the database takes at most a second. */
const REPORT_TIMEOUT_MS = 1500

/** A worker exited before it listened, or did not stop in time. The worker has reported the reason itself. */
export class WorkerFailedError extends Error {
  override readonly name = 'WorkerFailedError'
}

/** Worker processes that share one port. */
export interface Workers {
  /**
   * Resolves with the URL of the service when all workers listen. Rejects with a WorkerFailedError if one cannot start, or
   * with a StartUpError if a signal has ended it, so that it could not report why. Never settles after `stop`.
   */
  readonly address: Promise<string>
  /**
   * Stops all workers with SIGTERM, including those that are still starting.
   *
   * @throws {WorkerFailedError} if one did not stop in time
   */
  stop(): Promise<void>
}

/**
 * Starts `count` workers: one first, and the others when it listens. A worker that exits is restarted.
 *
 * @param env environment variables for the workers, in addition to those of this process
 */
export function startWorkers(count: number, env: Readonly<Record<string, string>>, log: Logger): Workers {
  const running = new Set<Worker>()
  const listening = new ListeningWorkers()
  let isStopping = false

  const fork = async (): Promise<Address> => {
    const worker = cluster.fork(env)
    closeConnectionInTransit(worker)
    listening.watch(worker)
    running.add(worker)
    // Rejects if the system could not start the process.
    const exited = once(worker, 'exit')
      .then(([code, signal]) => ({ code, signal }))
      .finally(() => running.delete(worker))
    const started = once(worker, 'listening').then(([address]): Address => address)
    const first = await Promise.race([started, exited])
    if ('code' in first && isStopping) return new Promise<never>(() => {})
    if ('code' in first) throw startFailure(first)
    void exited.then((outcome) => restart(worker, outcome))
    return first
  }

  const restart = async (worker: Worker, outcome: object): Promise<void> => {
    if (!isStopping) log.error({ worker: worker.id, ...outcome }, 'worker exited, restarting')
    while (!isStopping) {
      await setTimeout(RESTART_DELAY_MS)
      if (isStopping) return
      try {
        await fork()
        return
      } catch (err) {
        log.error({ err }, 'worker could not be started, trying again')
      }
    }
  }

  const forkAll = async (): Promise<string> => {
    const { address, port } = await fork()
    if (isStopping) return new Promise<never>(() => {})
    await Promise.all(Array.from({ length: count - 1 }, fork))
    return urlOf(address, port)
  }

  // A worker that is stuck, for example in an endless loop, would neither stop nor notice that this process has exited.
  process.once('exit', () => {
    for (const worker of running) worker.process.kill('SIGKILL')
  })

  return {
    address: forkAll(),
    async stop() {
      isStopping = true
      listening.stop()
      const stopped = await Promise.all([...running].map(stopWorker))
      if (!stopped.every(Boolean)) throw new WorkerFailedError('A worker did not stop in time')
    },
  }
}

/**
 * Coordinates the workers that listen, so that they act as one service: they share one readiness, and close the port without
 * losing a connection.
 */
class ListeningWorkers {
  /** The last readiness report of each worker: undefined if ready, else the reason. */
  readonly #workers = new Map<Worker, string | undefined>()
  readonly #requests = new Map<Worker, ProcessRequests>()
  /** Sent when the last worker has closed the port, if all of them are stopping. */
  #pendingReplies: (() => void)[] = []
  #isStopping = false

  /** Call it when the worker is started. */
  watch(worker: Worker): void {
    const requests = new ProcessRequests((message) => worker.send(message, () => {}), {
      readiness: () => this.#readiness(),
      // Connections that are waiting to be accepted reach this process in its next event-loop iterations, and a worker before
      // this reply, which uses the same channel.
      delivered: async () => {
        await setImmediate()
        await setImmediate()
        return undefined
      },
      // The worker has closed the port. If other workers keep listening, they serve its clients.
      closed: async () => {
        const reply = new Promise<undefined>((resolve) => this.#pendingReplies.push(() => resolve(undefined)))
        this.#delete(worker)
        return reply
      },
    })
    this.#requests.set(worker, requests)
    worker.on('message', (message: unknown) => requests.receive(message))
    worker.once('listening', () => this.#workers.set(worker, 'A worker process does not reply.'))
    const end = (): void => {
      requests.end()
      this.#requests.delete(worker)
      this.#delete(worker)
    }
    worker.once('exit', end)
    // The system could not start the process.
    worker.once('error', end)
  }

  /** Call it before the workers are stopped. */
  stop(): void {
    this.#isStopping = true
  }

  #delete(worker: Worker): void {
    this.#workers.delete(worker)
    if (this.#isStopping && this.#workers.size > 0) return
    for (const reply of this.#pendingReplies) reply()
    this.#pendingReplies = []
  }

  async #readiness(): Promise<string | undefined> {
    return this.#isStopping ? SHUTTING_DOWN : this.#checkAll()
  }

  /** Uses the last report of a worker that does not reply in time, and ignores a worker that has exited. */
  readonly #checkAll = coalesceChecks(async (): Promise<string | undefined> => {
    await Promise.all(
      Array.from(this.#workers.keys(), async (worker) => {
        const report = await this.#requests
          .get(worker)
          ?.ask('readiness', REPORT_TIMEOUT_MS)
          .catch(() => this.#workers.get(worker))
        if (this.#workers.has(worker)) this.#workers.set(worker, report)
      }),
    )
    if (this.#workers.size === 0) return 'No worker process is listening.'
    return [...this.#workers.values()].find((reason) => reason !== undefined)
  })
}

function startFailure({ code, signal }: { code: unknown; signal: unknown }): Error {
  if (signal === null) return new WorkerFailedError(`A worker exited with ${code}`)
  const cause = signal === 'SIGKILL' ? ' The system does that if it runs out of memory.' : ''
  return new StartUpError(`A worker process was ended by ${signal} before it could serve.${cause}`)
}

/** Stops a worker, and returns whether it exited cleanly. A worker that is still starting has no signal handler yet. */
async function stopWorker(worker: Worker): Promise<boolean> {
  const exited = once(worker, 'exit')
  worker.process.kill('SIGTERM')
  const [code, signal] = await exited
  return code === 0 || signal === 'SIGTERM'
}

/**
 * Closes the connection that was being sent to a worker when the worker died. Node sends a connection to the worker and
 * waits for it to be accepted; if the worker dies meanwhile, Node leaves the connection open, and the client waits forever.
 * Node sends the next connection only after the previous one was accepted, so there is at most one.
 */
function closeConnectionInTransit(worker: Worker): void {
  const { process: child } = worker
  let newest: { close(): void } | undefined
  // A connection that was accepted is already closed in this process, and closing it again has no effect.
  const closeNewest = (): void => newest?.close()
  child.send = new Proxy(child.send, {
    apply(send, self, values: unknown[]) {
      // Other messages have no handle.
      if (isHandle(values[1])) newest = values[1]
      const isSent: unknown = Reflect.apply(send, self, values)
      if (worker.isDead()) closeNewest()
      return isSent
    },
  })
  worker.once('exit', closeNewest)
}

function isHandle(value: unknown): value is { close(): void } {
  return typeof value === 'object' && value !== null && 'close' in value && typeof value.close === 'function'
}
