import t from 'tap'
import { startProgress } from '../../src/cli/progress.ts'

t.test('progress without a terminal is one line every five seconds, also after a pause', async (t) => {
  let seconds = 0
  t.capture(performance, 'now', () => seconds * 1000)
  const written = t.capture(console, 'error', () => {})
  t.intercept(process.stderr, 'isTTY', { value: false })
  const progress = startProgress('writing', 4000)
  for (const [time, rows] of [
    [4.9, 10],
    [5, 50],
    [5.1, 60],
    [40, 1000],
    [40.1, 1100],
    [44.9, 1200],
    [45, 1500],
  ] as const) {
    seconds = time
    progress.update(rows, rows)
  }
  progress.stop()
  t.strictSame(
    written().map(({ args: [line] }) => line),
    [
      'writing 50 rows, 10 rows/s, 6 min 35 s left',
      'writing 1,000 rows, 25 rows/s, 2 min 0 s left',
      'writing 1,500 rows, 33 rows/s, 1 min 15 s left',
    ],
  )
})
