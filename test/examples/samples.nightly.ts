import { spawnSync } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import t from 'tap'
import { apiKey, startService } from '../support/app.ts'
import { run, temporaryFolder } from '../support/program.ts'

const page = await readFile('docs/api.md', 'utf8')

for (const [language, program, args, file] of [
  ['python', 'python3', [], 'sample.py'],
  ['go', 'go', ['run'], 'sample.go'],
] as const) {
  const skip = spawnSync(program, ['help']).error !== undefined && `${program} is not installed`
  t.test(`the sample of docs/api.md in ${language} runs as it is`, { skip }, async (t) => {
    const [sample = '', ...others] = page.split(`\`\`\`${language}\n`).slice(1)
    t.strictSame(others, [])
    const service = await startService(t, ['1,12,available'])
    const start = async (address: string) => {
      const code = sample.replace(/```[\s\S]*/, '').replace('https://api.example.com/v1/inventory/1', address)
      const folder = await temporaryFolder(t, { [file]: code })
      const env = { ...process.env, INVENTORY_KEY: apiKey }
      return run(t, program, [...args, path.join(folder, file)], { env }).ended
    }
    const base = `http://127.0.0.1:${service.port}/v1/inventory`
    const done = await start(`${base}/1`)
    t.match(done, { code: 0, stderr: '', stdout: /1\b.*\b20\b.*available/ })
    t.match(await start(`${base}/6`), { code: 1, stderr: /404.*not_found/ })
  })
}
