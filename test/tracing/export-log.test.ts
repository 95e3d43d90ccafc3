import { Writable } from 'node:stream'
import { pino } from 'pino'
import t from 'tap'
import { ExportLog } from '../../src/tracing/export-log.ts'

t.test('a collector whose name has several addresses is logged with the reason of each', async (t) => {
  const lines: string[] = []
  const log = pino(
    { base: null },
    new Writable({ write: (line, _, done) => done(void lines.push(`${line}`)) }),
  )
  const refused = ['::1', '127.0.0.1'].map((address) => new Error(`connect ECONNREFUSED ${address}:4318`))
  new ExportLog(log).failed(new AggregateError(refused))
  t.match(
    lines.map((line) => JSON.parse(line)),
    [
      {
        msg: 'traces cannot be sent',
        reason: 'connect ECONNREFUSED ::1:4318; connect ECONNREFUSED 127.0.0.1:4318',
      },
    ],
  )
})
