import { once } from 'node:events'
import { createWriteStream } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { runBash } from '../support/command.ts'
import { testDatabase } from '../support/database.ts'
import { temporaryFolder } from '../support/program.ts'

const ROWS = 5_000_000

/** In kilobytes, as Node's resourceUsage() reports the most memory that a process has had. */
const LIMIT = 256 * 1024

const tellPeak =
  "--import=data:text/javascript,process.on('exit',()=>console.error('peak',process.resourceUsage().maxRSS))"

t.test('a file of 5 million lines is imported and exported in under 256 MB', async (t) => {
  const database = await testDatabase(t)
  const cwd = await temporaryFolder(t)
  const file = createWriteStream(path.join(cwd, 'stock.csv'))
  file.write('petId,quantity\n')
  for (let id = 0; id < ROWS; id += 10_000) {
    const lines = Array.from({ length: 10_000 }, (_, index) => `${id + index},${index}\n`)
    if (!file.write(lines.join(''))) await once(file, 'drain')
  }
  file.end()
  await once(file, 'close')
  const env = { DATABASE_URL: database.url, NODE_OPTIONS: tellPeak }
  for (const command of ['import stock.csv', 'export >copy.csv', 'import --mode=replace copy.csv']) {
    const { code, stdout, stderr } = await runBash(t, `inventory ${command}`, { cwd, env })
    t.equal(code, 0, stderr)
    const peak = Number(/^peak (\d+)$/m.exec(stderr)?.[1])
    t.ok(peak < LIMIT, `${command}: ${Math.round(peak / 1024)} MB; ${stdout}`)
  }
  t.strictSame(await database.query('SELECT count(*) FROM inventory'), [{ count: String(ROWS) }])
})
