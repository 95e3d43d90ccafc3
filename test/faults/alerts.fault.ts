import { readFile } from 'node:fs/promises'
import t from 'tap'
import { run } from '../support/program.ts'

t.test('promtool finds no error in the rules, and their own tests pass', async (t) => {
  for (const command of ['check rules ops/alerts.yml', 'test rules ops/alerts.test.yml'])
    t.match(await run(t, 'promtool', command.split(' ')).ended, { code: 0, stdout: /SUCCESS/ }, command)
})

t.test('every rule has a test of its own', async (t) => {
  const alerts = (await readFile('ops/alerts.yml', 'utf8')).matchAll(/alert: (\w+)/g)
  const tests = await readFile('ops/alerts.test.yml', 'utf8')
  for (const [, alert] of alerts) t.match(tests, new RegExp(`alertname: ${alert}\\n[^-]*exp_alerts:\\n`))
})
