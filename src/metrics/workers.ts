import cluster, { type Worker } from 'node:cluster'
import { setTimeout } from 'node:timers/promises'
import { aggregate, counter, gauge, type MetricFamily } from './families.ts'

/**
 * How long to wait for the metrics of the workers: longer than a worker's check of the database takes, and less than the
 * scrape timeout of Prometheus, 10 seconds.
 */
const REPLY_TIMEOUT_MS = 2000

/** A request of the primary to a worker. */
interface MetricsRequest {
  readonly metricsWithStock: boolean
}

/** The reply of a worker. */
interface MetricsReply {
  readonly metrics: readonly MetricFamily[]
}

/**
 * Replies to the primary's requests for the metrics of this worker.
 *
 * @param collect collects the metrics; `withStock` includes the counts of entries, which the primary requests from one
 *   worker only
 */
export function answerPrimary(collect: (withStock: boolean) => Promise<readonly MetricFamily[]>): void {
  process.on('message', async (message) => {
    if (!isRequest(message)) return
    const reply: MetricsReply = { metrics: await collect(message.metricsWithStock) }
    // The primary may have exited meanwhile.
    if (process.connected) process.send?.(reply, undefined, undefined, () => {})
  })
}

/**
 * Returns a function that collects the metrics of all workers that listen, one set for each, and those of the primary itself.
 * Call it before the workers are started. A worker that does not reply in time counts with its last report. The counters and
 * histograms of a worker that has exited remain in the sum, so that it never falls; what the worker counted after its last
 * report is lost.
 */
export function metricsOfWorkers(): () => Promise<readonly (readonly MetricFamily[])[]> {
  const listening = new Set<number>()
  const lastReports = new Map<number, readonly MetricFamily[]>()
  const pendingReplies = new Map<number, (hasReplied: boolean) => void>()
  const exitedWorkers: (readonly MetricFamily[])[] = []
  let exits = 0

  // Before that, a worker does not reply.
  cluster.on('listening', ({ id }) => listening.add(id))
  cluster.on('message', ({ id }, message: unknown) => {
    if (!isReply(message)) return
    lastReports.set(id, message.metrics)
    pendingReplies.get(id)?.(true)
  })
  cluster.on('exit', ({ id }) => {
    exits++
    listening.delete(id)
    exitedWorkers.push((lastReports.get(id) ?? []).filter(({ type }) => type !== 'gauge'))
    lastReports.delete(id)
    pendingReplies.get(id)?.(false)
    pendingReplies.delete(id)
  })

  const requestReport = async (worker: Worker, request: MetricsRequest): Promise<boolean> => {
    const replied = new Promise<boolean>((resolve) => pendingReplies.set(worker.id, resolve))
    worker.send(request, () => {})
    return Promise.race([replied, setTimeout(REPLY_TIMEOUT_MS, false, { ref: false })])
  }

  const collect = async (): Promise<readonly (readonly MetricFamily[])[]> => {
    const workers = Object.values(cluster.workers ?? {}).flatMap((worker) =>
      worker?.isConnected() === true && listening.has(worker.id) ? [worker] : [],
    )
    // One worker counts the entries, because all would count the same ones.
    const replies = await Promise.all(
      workers.map((worker, index) => requestReport(worker, { metricsWithStock: index === 0 })),
    )
    const answering = replies.filter(Boolean).length
    // Keeps a single set for any number of exited workers.
    exitedWorkers.push(await aggregate(exitedWorkers.splice(0)))
    return [
      ...exitedWorkers,
      ...lastReports.values(),
      [
        gauge('inventory_workers', 'Workers that listen, by whether they reported their metrics in time.', [
          { labels: { state: 'answering' }, value: answering },
          { labels: { state: 'silent' }, value: replies.length - answering },
        ]),
        counter('inventory_worker_exits_total', 'Workers that have exited.', [{ labels: {}, value: exits }]),
      ],
    ]
  }

  let collecting: ReturnType<typeof collect> | undefined
  return () => {
    collecting ??= collect().finally(() => {
      collecting = undefined
    })
    return collecting
  }
}

function isRequest(message: unknown): message is MetricsRequest {
  return typeof message === 'object' && message !== null && 'metricsWithStock' in message
}

function isReply(message: unknown): message is MetricsReply {
  return typeof message === 'object' && message !== null && 'metrics' in message
}
