import { performance } from 'node:perf_hooks'
import { collectDefaultMetrics, Registry } from 'prom-client'
import { type Collect, counter, gauge, type MetricFamily } from './families.ts'

/**
 * What several processes make together, where prom-client would show the mean of them or nothing: one process that is
 * held up must not be hidden by the others, and the service is as old as the oldest.
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

/** Left out: what Node tells of by private functions alone, and sums that have the name of a counter and are none. */
const leftOut = [
  'nodejs_active_handles',
  'nodejs_active_handles_total',
  'nodejs_active_requests',
  'nodejs_active_requests_total',
  'nodejs_active_resources_total',
]

/**
 * Measures this process from now on: what prom-client measures of every Node.js process, and a little more.
 *
 * @param droppedLogLines tells how many log lines could not be written so far
 */
export function measureProcess(version: string, droppedLogLines: () => number): Collect {
  const register = new Registry()
  collectDefaultMetrics({ register })
  for (const name of leftOut) register.removeSingleMetric(name)
  return async () => [
    {
      ...gauge('inventory_build_info', 'The version that runs.', [{ labels: { version }, value: 1 }]),
      aggregator: 'first',
    },
    counter(
      'inventory_log_lines_dropped_total',
      'Log lines that were not written, because standard output was not read or was full.',
      [{ labels: {}, value: droppedLogLines() }],
    ),
    eventLoopTime(),
    ...(await register.getMetricsAsJSON()).map(withAggregator),
  ]
}

/** A counter, unlike a ratio since the last look, is right for every interval, several readers and many processes. */
function eventLoopTime(): MetricFamily {
  const { active, idle } = performance.eventLoopUtilization()
  return counter(
    'nodejs_eventloop_time_seconds_total',
    'Time that the event loop was in a state; its utilisation is what active is of both.',
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
