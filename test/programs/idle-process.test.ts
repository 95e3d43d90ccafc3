import { readFile } from 'node:fs/promises'
import t from 'tap'
import { serverFlags } from '../support/program.ts'

t.test('the image runs the server with the flags of npm start', async (t) => {
  const flags = await serverFlags()
  t.ok(flags.length > 0)
  const command = (await readFile('Dockerfile', 'utf8')).match(/^.*dist\/server\.js.*$/m)?.[0] ?? ''
  for (const flag of flags) t.ok(command.includes(flag), flag)
})
