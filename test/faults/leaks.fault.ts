import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { testDatabase } from '../support/database.ts'
import { mixedLoad } from '../support/mixed-load.ts'
import { type Usage, usageOf } from '../support/process-usage.ts'
import { startServer } from '../support/running-server.ts'

const MINUTE = 60_000
const WARM_UP = MINUTE
const DURATION = 5 * MINUTE

t.test(
  'memory and connections stay flat through minutes of mixed load with aborts',
  { timeout: 10 * MINUTE },
  async (t) => {
    const database = await testDatabase(t)
    await database.query("INSERT INTO inventory SELECT n, 0, 'sold' FROM generate_series(1, 5000) n")
    const server = await startServer(t, { DATABASE_URL: database.url, LOG_LEVEL: 'info' })
    const { port } = server
    // Nobody reads the log on.
    server.process.stdout?.removeAllListeners('data').resume()
    const start = performance.now()
    let goesOn = true
    const load = mixedLoad({ port, callers: 50, goesOn: () => goesOn })
    const usages: (Usage & { at: number })[] = []
    while (performance.now() - start < WARM_UP + DURATION) {
      await setTimeout(1000)
      const usage = await usageOf(server.process.pid)
      if (usage !== undefined) usages.push({ ...usage, at: performance.now() - start })
    }
    goesOn = false
    t.comment(JSON.stringify(await load))
    const mediansOf = (minute: number): { memory: number; files: number } => {
      const within = usages.filter(({ at }) => Math.floor(at / MINUTE) === minute)
      return {
        memory: median(within.map(({ memory }) => memory)),
        files: median(within.map(({ files }) => files)),
      }
    }
    const minutes = Array.from({ length: (WARM_UP + DURATION) / MINUTE }, (_, minute) => mediansOf(minute))
    for (const [minute, { memory, files }] of minutes.entries()) {
      t.comment(`minute ${minute + 1}: ${memory.toFixed(0)} MB, ${files} open files`)
    }
    const [, first] = minutes
    const last = minutes.at(-1)
    if (first === undefined || last === undefined) return
    t.ok(last.memory < first.memory * 1.25, 'memory is flat')
    t.ok(last.files < first.files + 50, 'connections are flat')
    const [row] = await database.query(
      "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'petstore-inventory server' AND datname = current_database()",
    )
    t.ok(Number(row?.['count']) <= 11, 'as many connections to the database as it may have')
  },
)

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN
}
