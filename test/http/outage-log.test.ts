import { pino } from 'pino'
import t from 'tap'
import { OutageLog } from '../../src/http/outage-log.ts'

t.test('logs twenty reasons of an outage at most, and its end once', async (t) => {
  let now = 0
  t.capture(performance, 'now', () => now)
  const lines: Record<string, unknown>[] = []
  const log = pino({ base: null }, { write: (line) => void lines.push(JSON.parse(line)) })
  const outages = new OutageLog(log)
  for (const outage of ['first', 'second']) {
    for (let request = 0; request < 60; request++) {
      outages.requestFailed(new Error(`reason ${request % 30}`))
    }
    t.equal(lines.length, 20, `the reasons of the ${outage} one`)
    now += 999
    outages.requestServed()
    t.equal(lines.length, 20)
    now += 1
    outages.requestServed()
    outages.requestServed()
    t.match(lines.splice(0).slice(20), [{ msg: 'the database serves requests again', refused: 60 }])
  }
})
