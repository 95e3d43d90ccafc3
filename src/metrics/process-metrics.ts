import { hostname } from 'node:os'
import { performance } from 'node:perf_hooks'
import { Counter, collectDefaultMetrics, Gauge, type Registry } from 'prom-client'

/** Adds the metrics of this process: prom-client's, the version, the event loop and the log. Call it once. */
export function measureProcess(register: Registry, version: string, droppedLogLines: () => number): void {
  const registers = [register]
  collectDefaultMetrics({ register })
  new Gauge({
    name: 'inventory_build_info',
    help: 'The version of the service and the name of its host; the value is always 1.',
    labelNames: ['version', 'host'],
    registers,
  }).set({ version, host: hostname() }, 1)
  new Counter({
    name: 'inventory_log_lines_dropped_total',
    help: 'Log lines dropped because standard output was full or not read.',
    registers,
    collect() {
      this.reset()
      this.inc(droppedLogLines())
    },
  })
  // A counter: unlike a ratio since the last scrape, it is correct for any interval and several scrapers.
  new Counter({
    name: 'nodejs_eventloop_time_seconds_total',
    help: 'Time that the event loop was active or idle; utilization is active divided by both.',
    labelNames: ['nodejs_eventloop_state'],
    registers,
    collect() {
      const { active, idle } = performance.eventLoopUtilization()
      this.reset()
      this.inc({ nodejs_eventloop_state: 'active' }, active / 1000)
      this.inc({ nodejs_eventloop_state: 'idle' }, idle / 1000)
    },
  })
}
