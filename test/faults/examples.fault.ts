import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { callsWell } from '../support/examples.ts'
import { pathOf } from './needs.ts'

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

async function compileJava(): Promise<[string, ...string[]]> {
  await run('javac', ['-Xlint:all', '-Werror', '-d', programs, 'examples/java/Inventory.java'])
  return ['java', '-cp', programs, 'Inventory']
}

async function compileRust(): Promise<[string]> {
  await run('cargo', [
    ...['build', '--locked', '--manifest-path', 'examples/rust/Cargo.toml'],
    ...['--target-dir', path.join(programs, 'rust')],
  ])
  return [path.join(programs, 'rust/debug/inventory')]
}

/** With the .NET SDK, or with Mono where that is what there is. */
async function compileCsharp(): Promise<[string, ...string[]]> {
  if ((await pathOf('dotnet')) !== undefined) {
    const output = path.join(programs, 'csharp')
    const artifacts = path.join(programs, 'csharp-artifacts')
    await run('dotnet', [
      ...['build', 'examples/csharp/Inventory.csproj', '--output', output],
      ...['--artifacts-path', artifacts],
    ])
    return ['dotnet', path.join(output, 'Inventory.dll')]
  }
  const program = path.join(programs, 'inventory.exe')
  const references = ['-r:System.Net.Http', '-r:System.Runtime.Serialization']
  await run('mcs', [
    ...['-langversion:latest', '-warnaserror', `-out:${program}`],
    ...references,
    'examples/csharp/Inventory.cs',
  ])
  return ['mono', program]
}

const examples: Readonly<Record<string, Compile>> = {
  Python: async () => ['python3', 'examples/python/inventory.py'],
  Go: compileGo,
  Java: compileJava,
  'C#': compileCsharp,
  Rust: compileRust,
}

for (const [language, compile] of Object.entries(examples)) {
  t.test(`the example in ${language}`, async (t) => {
    const [command, ...args] = await compile()
    await callsWell(t, command, args)
  })
}
