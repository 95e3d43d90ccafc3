import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import t from 'tap'
import { makeApiKey } from '../../src/api-keys/key.ts'
import { testDatabase } from '../support/database.ts'
import { portOf, serverFlags, startProgram, temporaryFolder } from '../support/program.ts'

/** V8 looks 8 seconds after the first full collection whether the process is idle. */
const IDLE_MS = 12_000

const traceFlag = process.versions.node.startsWith('20.') ? '--trace-gc-verbose' : '--trace-memory-reducer'

t.test('V8 does not wait for the server to be idle to collect its garbage', async (t) => {
  const database = await testDatabase(t)
  const node = path.join(await temporaryFolder(t), 'node')
  // Without NODE_OPTIONS: what tap loads with it into each process would be there before the server.
  const script = `#!/bin/sh\nunset NODE_OPTIONS\nexec '${process.execPath}' --trace-gc ${traceFlag} "$@"\n`
  await writeFile(node, script, { mode: 0o755 })
  const program = await startProgram(t, 'server', {
    node,
    env: { DATABASE_URL: database.url, API_KEYS: `test:${makeApiKey()}`, PORT: '0' },
  })
  await portOf(program)
  await setTimeout(IDLE_MS)
  program.process.kill('SIGTERM')
  const { code, stdout } = await program.ended
  t.equal(code, 0)
  t.match(stdout, /Mark-Compact/, 'a full collection')
  t.notMatch(stdout, /Memory reducer/, 'a check whether to start another one')
})

t.test('the image and the systemd unit run the server with the flags of npm start', async (t) => {
  const flags = await serverFlags()
  t.ok(flags.length > 0)
  for (const file of ['Dockerfile', 'ops/inventory@.service']) {
    const command = (await readFile(file, 'utf8')).match(/^.*dist\/server\.js.*$/m)?.[0] ?? ''
    for (const flag of flags) t.ok(command.includes(flag), `${file}: ${flag}`)
  }
})
