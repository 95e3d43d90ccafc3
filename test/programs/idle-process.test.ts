import { readFile } from 'node:fs/promises'
import t from 'tap'
import { serverFlags } from '../support/program.ts'

t.test('the image and the systemd unit run the server with the flags of npm start', async (t) => {
  const flags = await serverFlags()
  t.ok(flags.length > 0)
  for (const file of ['Dockerfile', 'ops/inventory@.service']) {
    const command = (await readFile(file, 'utf8')).match(/^.*dist\/server\.js.*$/m)?.[0] ?? ''
    for (const flag of flags) t.ok(command.includes(flag), `${file}: ${flag}`)
  }
})
