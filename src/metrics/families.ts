import { AggregatorRegistry, type PrometheusContentType, prometheusContentType } from 'prom-client'
import type { Histogram } from '../statistics/histogram.ts'

type Labels = Readonly<Partial<Record<string, string | number>>>

/** The current value of one series, with the labels that identify it. */
export interface Sample<T> {
  readonly labels: Labels
  readonly value: T
}

interface Series extends Sample<number> {
  /** The name of the series if it differs from the family's, as in a histogram. */
  readonly metricName?: string
}

/** A metric with all of its series: plain data, in the form that prom-client aggregates. */
export interface MetricFamily {
  readonly name: string
  readonly help: string
  /** Such as `counter`. Unknown, because prom-client declares an enum of numbers but uses these texts. */
  readonly type: unknown
  /** How prom-client combines the series of several processes. */
  readonly aggregator: 'sum' | 'first' | 'min' | 'max' | 'average' | 'omit'
  readonly values: readonly Series[]
}

/** Collects the current metrics. */
export type Collect = () => Promise<readonly MetricFamily[]>

/** Makes a counter: a number that only grows. */
export function counter(name: string, help: string, values: readonly Sample<number>[]): MetricFamily {
  return { name, help, type: 'counter', aggregator: 'sum', values }
}

/** Makes a gauge, which is summed over all processes. */
export function gauge(name: string, help: string, values: readonly Sample<number>[]): MetricFamily {
  return { name, help, type: 'gauge', aggregator: 'sum', values }
}

/** Makes a histogram. */
export function histogram(name: string, help: string, values: readonly Sample<Histogram>[]): MetricFamily {
  return {
    name,
    help,
    type: 'histogram',
    aggregator: 'sum',
    values: values.flatMap((sample) => seriesOf(name, sample)),
  }
}

/** Makes the series of a histogram. Buckets are cumulative in the exposition format. */
function seriesOf(name: string, { labels, value }: Sample<Histogram>): Series[] {
  const { bounds, counts, sum } = value
  let count = 0
  const buckets = counts.map((values, index) => {
    count += values
    return {
      metricName: `${name}_bucket`,
      labels: { ...labels, le: bounds[index] ?? '+Inf' },
      value: count,
    }
  })
  return [
    ...buckets,
    { metricName: `${name}_sum`, labels, value: sum },
    { metricName: `${name}_count`, labels, value: count },
  ]
}

/** The media type of the text from `expose`. */
export const expositionType = prometheusContentType

/** Writes the metrics in Prometheus's text format. */
export function expose(families: readonly MetricFamily[]): Promise<string> {
  return AggregatorRegistry.aggregate<PrometheusContentType>([[...families]]).metrics()
}
