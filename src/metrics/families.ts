import { AggregatorRegistry, type PrometheusContentType, prometheusContentType } from 'prom-client'
import type { Histogram } from '../statistics/histogram.ts'

type Labels = Readonly<Partial<Record<string, string | number>>>

/** What a series has now; the labels tell it from the others of its family. */
export interface Sample<T> {
  readonly labels: Labels
  readonly value: T
}

interface Series extends Sample<number> {
  /** Where it is not the family's own, as for the parts of a histogram. */
  readonly metricName?: string
}

/** A metric with all of its series as of one moment: plain data, in the form in which prom-client sums it up. */
export interface MetricFamily {
  readonly name: string
  readonly help: string
  readonly type: unknown
  /** What the series of several processes make together. */
  readonly aggregator: 'sum' | 'first' | 'min' | 'max' | 'average' | 'omit'
  readonly values: readonly Series[]
}

/** Tells the metrics of this moment. */
export type Collect = () => Promise<readonly MetricFamily[]>

/** A number that only grows. */
export function counter(name: string, help: string, values: readonly Sample<number>[]): MetricFamily {
  return { name, help, type: 'counter', aggregator: 'sum', values }
}

/** A number that goes up and down, and is the sum of what each process has. */
export function gauge(name: string, help: string, values: readonly Sample<number>[]): MetricFamily {
  return { name, help, type: 'gauge', aggregator: 'sum', values }
}

/** How many values fell below each of several bounds. */
export function histogram(name: string, help: string, values: readonly Sample<Histogram>[]): MetricFamily {
  return {
    name,
    help,
    type: 'histogram',
    aggregator: 'sum',
    values: values.flatMap((sample) => seriesOf(name, sample)),
  }
}

/** The buckets of the exposition format are cumulative: each has the values of those below it. */
function seriesOf(name: string, { labels, value }: Sample<Histogram>): Series[] {
  const { bounds, counts, sum } = value
  let count = 0
  const buckets = counts.map((values, range) => {
    count += values
    return {
      metricName: `${name}_bucket`,
      labels: { ...labels, le: bounds[range] ?? '+Inf' },
      value: count,
    }
  })
  return [
    ...buckets,
    { metricName: `${name}_sum`, labels, value: sum },
    { metricName: `${name}_count`, labels, value: count },
  ]
}

/** The metrics of several processes as those of one. */
export async function sumOf(processes: readonly (readonly MetricFamily[])[]): Promise<MetricFamily[]> {
  return AggregatorRegistry.aggregate<PrometheusContentType>([...processes]).getMetricsAsJSON()
}

/** The media type of what `expose` makes. */
export const expositionType = prometheusContentType

/** The metrics of one process, or of several together, as text for Prometheus. */
export function expose(processes: readonly (readonly MetricFamily[])[]): Promise<string> {
  return AggregatorRegistry.aggregate<PrometheusContentType>([...processes]).metrics()
}
