import cluster, { type Address, type Worker } from 'node:cluster'
import { once } from 'node:events'
import { isIPv6 } from 'node:net'
import { setImmediate, setTimeout } from 'node:timers/promises'
import type { Logger } from 'pino'
import { coalesceChecks, SHUTTING_DOWN } from '../http/health.ts'
import { ProcessRequests } from './process-requests.ts'

/** How long to wait before a worker is replaced, in milliseconds: one that cannot live must not be started in a loop. */
const REPLACE_DELAY = 1000

/** How long a worker has to report whether it is ready, in milliseconds: its check of the database takes one at most. */
const REPORT_TIMEOUT_MS = 1500

/** The first worker has ended before it listened. It has said why, so there is nothing more to say. */
export class WorkerFailedError extends Error {
  override readonly name = 'WorkerFailedError'
}

/** Processes of this program that share one port. */
export interface Workers {
  /**
   * Where they listen, once all of them do. Rejects with a WorkerFailedError when one
   * cannot start; never settles once they are being stopped.
   */
  readonly address: Promise<string>
  /**
   * Stops them as SIGTERM does, those that are still starting too.
   *
   * @throws {WorkerFailedError} when one could not stop in time
   */
  stop(): Promise<void>
}

/**
 * Starts `count` workers, the others once the first one listens. One that ends by itself is replaced.
 *
 * @param env what the workers' environment has beside this process's own
 */
export function startWorkers(count: number, env: Readonly<Record<string, string>>, log: Logger): Workers {
  const running = new Set<Worker>()
  const listening = new ListeningWorkers()
  let stopping = false

  const fork = async (): Promise<Address> => {
    const worker = cluster.fork(env)
    closeUndelivered(worker)
    listening.watch(worker)
    running.add(worker)
    const ended = once(worker, 'exit').then(([code, signal]) => {
      running.delete(worker)
      return { code, signal }
    })
    const started = once(worker, 'listening').then(([address]): Address => address)
    const first = await Promise.race([started, ended])
    if ('code' in first && stopping) return new Promise<never>(() => {})
    if ('code' in first) throw new WorkerFailedError(`A worker has ended with ${first.signal ?? first.code}`)
    void ended.then((outcome) => replace(worker, outcome))
    return first
  }

  const replace = async (worker: Worker, outcome: object): Promise<void> => {
    while (!stopping) {
      log.error({ worker: worker.id, ...outcome }, 'a worker has ended; another takes its place')
      await setTimeout(REPLACE_DELAY)
      if (stopping) return
      const started = await fork().then(
        () => true,
        () => false,
      )
      if (started) return
    }
  }

  const forkAll = async (): Promise<string> => {
    const { address, port } = await fork()
    if (stopping) return new Promise<never>(() => {})
    await Promise.all(Array.from({ length: count - 1 }, fork))
    return `http://${isIPv6(address) ? `[${address}]` : address}:${port}`
  }

  return {
    address: forkAll(),
    async stop() {
      stopping = true
      listening.stop()
      const stopped = await Promise.all([...running].map(stopWorker))
      if (!stopped.every(Boolean)) throw new WorkerFailedError('A worker did not stop in time')
    },
  }
}

/**
 * The workers that accept connections: what they need to know of each other to be one service, with one readiness, that
 * loses no connection when it closes the port.
 */
class ListeningWorkers {
  /** With what each last reported: undefined for ready, else the reason. */
  readonly #workers = new Map<Worker, string | undefined>()
  readonly #requests = new Map<Worker, ProcessRequests>()
  /** The replies that are due when the last worker has closed the port, once all of them stop. */
  #pendingReplies: (() => void)[] = []
  #isStopping = false

  /** To be called when the worker is started. */
  watch(worker: Worker): void {
    const requests = new ProcessRequests((message) => worker.send(message, () => {}), {
      readiness: () => this.#readiness(),
      // Connections that the system has accepted reach this process in the next iteration of its event loop, and a
      // worker before this reply, which takes the same way.
      delivered: async () => {
        await setImmediate()
        await setImmediate()
        return undefined
      },
      // The worker's request comes after its own closing of the port. Where others go on listening, its clients are
      // served by them.
      closed: async () => {
        const reply = new Promise<undefined>((resolve) => this.#pendingReplies.push(() => resolve(undefined)))
        this.#delete(worker)
        return reply
      },
    })
    this.#requests.set(worker, requests)
    worker.on('message', (message: unknown) => requests.receive(message))
    worker.once('listening', () => this.#workers.set(worker, 'A worker process does not reply.'))
    worker.once('exit', () => {
      requests.end()
      this.#requests.delete(worker)
      this.#delete(worker)
    })
  }

  /** To be called before the workers are stopped. */
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

  /** A worker that has not replied in time counts with its last report, one that has ended does not count. */
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
    if (this.#workers.size === 0) return 'No worker process listens.'
    return [...this.#workers.values()].find((reason) => reason !== undefined)
  })
}

/** True where the worker has ended in good order; one that was not yet up has no handler for the signal. */
async function stopWorker(worker: Worker): Promise<boolean> {
  const ended = once(worker, 'exit')
  worker.process.kill('SIGTERM')
  const [code, signal] = await ended
  return code === 0 || signal === 'SIGTERM'
}

/**
 * Closes the connection that was on its way to a worker when that died. Node hands a new connection to the worker's
 * process and waits for its word without end, and the caller with it. The next one follows only when the worker has
 * accepted the one before, so there is one at most.
 */
function closeUndelivered(worker: Worker): void {
  const { process: child } = worker
  let newest: { close(): void } | undefined
  // An accepted one has been closed in this process, where closing it again has no effect.
  const closeNewest = (): void => newest?.close()
  child.send = new Proxy(child.send, {
    apply(send, self, values: unknown[]) {
      // Other messages go the same way and have none.
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
