import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { callsWell } from '../support/examples.ts'

const tsx = createRequire(import.meta.url).resolve('tsx/cli')
const run = promisify(execFile)
const programs = await mkdtemp(path.join(tmpdir(), 'examples-'))
t.teardown(() => rm(programs, { recursive: true }))

/** Compiles an example, and returns the command that starts it. */
type Compile = () => Promise<readonly [command: string, ...args: string[]]>

async function compileGo(): Promise<[string]> {
  const program = path.join(programs, 'go')
  await run('go', ['build', '-o', program, 'examples/go/inventory.go'])
  return [program]
}

const examples: Readonly<Record<string, Compile>> = {
  curl: async () => ['examples/curl/inventory.sh'],
  TypeScript: async () => [process.execPath, tsx, 'examples/typescript/inventory.ts'],
  Python: async () => ['python3', 'examples/python/inventory.py'],
  Go: compileGo,
}

for (const [language, compile] of Object.entries(examples)) {
  t.test(`the example in ${language}`, async (t) => {
    const [command, ...args] = await compile()
    await callsWell(t, command, args)
  })
}
