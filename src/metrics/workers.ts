import cluster, { type Worker } from 'node:cluster'
import { setTimeout } from 'node:timers/promises'
import { counter, gauge, type MetricFamily, sumOf } from './families.ts'

/**
 * How long the workers have to reply with their metrics, in milliseconds: less than the 10 seconds that Prometheus waits,
 * and more than a worker's own check of the database takes.
 */
const REPLY_TIMEOUT_MS = 2000

/** What the primary asks a worker for. */
interface Question {
  readonly metricsWithStock: boolean
}

/** What a worker answers. */
interface Answer {
  readonly metrics: readonly MetricFamily[]
}

/**
 * Tells the metrics of this worker to the primary whenever that asks for them.
 *
 * @param collect is told whether to count the entries, too: the primary has one worker do so
 */
export function answerPrimary(collect: (withStock: boolean) => Promise<readonly MetricFamily[]>): void {
  process.on('message', async (message) => {
    if (!isQuestion(message)) return
    const answer: Answer = { metrics: await collect(message.metricsWithStock) }
    // The primary may be gone by now.
    if (process.connected) process.send?.(answer, undefined, undefined, () => {})
  })
}

/**
 * Returns a function for the primary that tells the metrics of all its workers, a set for each, and its own. A worker
 * that does not answer in time counts with what it told last. So does one that has ended, with the numbers that only
 * grow, so that their sum never falls; what it counted after it was last asked is lost.
 */
export function metricsOfWorkers(): () => Promise<readonly (readonly MetricFamily[])[]> {
  const told = new Map<number, readonly MetricFamily[]>()
  const awaited = new Map<number, (hasAnswered: boolean) => void>()
  const ended: (readonly MetricFamily[])[] = []
  let exits = 0

  cluster.on('message', ({ id }, message: unknown) => {
    if (!isAnswer(message)) return
    told.set(id, message.metrics)
    awaited.get(id)?.(true)
  })
  cluster.on('exit', ({ id }) => {
    exits++
    ended.push((told.get(id) ?? []).filter(({ type }) => type !== 'gauge'))
    told.delete(id)
    awaited.get(id)?.(false)
  })

  const ask = async (worker: Worker, question: Question): Promise<boolean> => {
    const answered = new Promise<boolean>((resolve) => awaited.set(worker.id, resolve))
    worker.send(question, () => {})
    return Promise.race([answered, setTimeout(REPLY_TIMEOUT_MS, false, { ref: false })])
  }

  const collect = async (): Promise<readonly (readonly MetricFamily[])[]> => {
    const workers = Object.values(cluster.workers ?? {}).flatMap((worker) =>
      worker?.isConnected() === true ? [worker] : [],
    )
    // All workers would count the same entries.
    const answers = await Promise.all(
      workers.map((worker, index) => ask(worker, { metricsWithStock: index === 0 })),
    )
    const answering = answers.filter(Boolean).length
    // One set for all that have ended, however many they are.
    ended.push(await sumOf(ended.splice(0)))
    return [
      ...ended,
      ...told.values(),
      [
        gauge('inventory_workers', 'Workers that run, by whether they have told their metrics in time.', [
          { labels: { state: 'answering' }, value: answering },
          { labels: { state: 'silent' }, value: answers.length - answering },
        ]),
        counter('inventory_worker_exits_total', 'Workers that have ended.', [{ labels: {}, value: exits }]),
      ],
    ]
  }

  let underWay: ReturnType<typeof collect> | undefined
  return () => {
    underWay ??= collect().finally(() => {
      underWay = undefined
    })
    return underWay
  }
}

function isQuestion(message: unknown): message is Question {
  return typeof message === 'object' && message !== null && 'metricsWithStock' in message
}

function isAnswer(message: unknown): message is Answer {
  return typeof message === 'object' && message !== null && 'metrics' in message
}
