import { performance } from 'node:perf_hooks'
import { collectDefaultMetrics, Registry } from 'prom-client'
import { type Collect, counter, gauge, type MetricFamily } from './families.ts'

/**
 * Aggregators that replace prom-client's, which averages or omits these metrics: one process with a blocked event loop must
 * stay visible, and the service started when its first process did.
 */
const aggregators: Readonly<Record<string, MetricFamily['aggregator']>> = {
  nodejs_eventloop_lag_seconds: 'max',
  nodejs_eventloop_lag_mean_seconds: 'max',
  nodejs_eventloop_lag_stddev_seconds: 'max',
  nodejs_eventloop_lag_p50_seconds: 'max',
  nodejs_eventloop_lag_p90_seconds: 'max',
  nodejs_eventloop_lag_p99_seconds: 'max',
  process_start_time_seconds: 'min',
}

/** Omits metrics that rely on private functions of Node, and gauges that are named like counters. */
const omittedMetrics = [
  'nodejs_active_handles',
  'nodejs_active_handles_total',
  'nodejs_active_requests',
  'nodejs_active_requests_total',
  'nodejs_active_resources_total',
]

/**
 * Returns a function that collects the metrics of this process: prom-client's default metrics, the version, the event loop and
 * the log.
 *
 * @param droppedLogLines returns how many log lines were dropped so far
 */
export function measureProcess(version: string, droppedLogLines: () => number): Collect {
  const register = new Registry()
  collectDefaultMetrics({ register })
  for (const name of omittedMetrics) register.removeSingleMetric(name)
  return async () => [
    {
      ...gauge('inventory_build_info', 'The version of the service; the value is always 1.', [
        { labels: { version }, value: 1 },
      ]),
      aggregator: 'first',
    },
    counter(
      'inventory_log_lines_dropped_total',
      'Log lines dropped because standard output was full or not read.',
      [{ labels: {}, value: droppedLogLines() }],
    ),
    eventLoopTime(),
    ...(await register.getMetricsAsJSON()).map(withAggregator),
  ]
}

/** A counter: unlike a ratio since the last scrape, it is correct for any interval, several scrapers and many processes. */
function eventLoopTime(): MetricFamily {
  const { active, idle } = performance.eventLoopUtilization()
  return counter(
    'nodejs_eventloop_time_seconds_total',
    'Time that the event loop was active or idle; utilization is active divided by both.',
    [
      { labels: { nodejs_eventloop_state: 'active' }, value: active / 1000 },
      { labels: { nodejs_eventloop_state: 'idle' }, value: idle / 1000 },
    ],
  )
}

function withAggregator(family: Awaited<ReturnType<Registry['getMetricsAsJSON']>>[number]): MetricFamily {
  const { name, help, type, aggregator, values } = family
  return { name, help, type, aggregator: aggregators[name] ?? aggregator, values }
}
