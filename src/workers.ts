import cluster, { type Address, type Worker } from 'node:cluster'
import { once } from 'node:events'
import { isIPv6 } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import type { Logger } from 'pino'

/** How long to wait before a worker is replaced, in milliseconds: one that cannot live must not be started in a loop. */
const REPLACE_DELAY = 1000

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
  let stopping = false

  const fork = async (): Promise<Address> => {
    const worker = cluster.fork(env)
    closeUndelivered(worker)
    running.add(worker)
    const ended = once(worker, 'exit').then(([code, signal]) => {
      running.delete(worker)
      return { code, signal }
    })
    const listening = once(worker, 'listening').then(([address]): Address => address)
    const first = await Promise.race([listening, ended])
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
      const stopped = await Promise.all([...running].map(stopWorker))
      if (!stopped.every(Boolean)) throw new WorkerFailedError('A worker did not stop in time')
    },
  }
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
  let newest: unknown
  // An accepted one has been closed in this process, where closing it again has no effect.
  const closeNewest = (): void => {
    if (isHandle(newest)) newest.close()
  }
  child.send = new Proxy(child.send, {
    apply(send, self, values: unknown[]) {
      newest = values[1]
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
