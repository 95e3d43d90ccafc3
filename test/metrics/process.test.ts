import t from 'tap'
import { expose } from '../../src/metrics/families.ts'
import { measureProcess } from '../../src/metrics/process.ts'
import { parseExposition, total } from '../support/exposition.ts'

t.test('of several processes, the slowest event loop and the first start are shown', async (t) => {
  const metrics = await measureProcess('1.2.3', () => 0)()
  const withValues = (value: number): typeof metrics =>
    metrics.map((family) => ({ ...family, values: family.values.map((sample) => ({ ...sample, value })) }))
  const shown = parseExposition(await expose([withValues(2), withValues(7)]))
  for (const name of [
    'seconds',
    'mean_seconds',
    'stddev_seconds',
    'p50_seconds',
    'p90_seconds',
    'p99_seconds',
  ])
    t.equal(total(shown, `nodejs_eventloop_lag_${name}`), 7, name)
  t.equal(total(shown, 'process_start_time_seconds'), 2)
  t.equal(total(shown, 'inventory_log_lines_dropped_total'), 9)
})
