import { spawnSync } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import t from 'tap'
import { requireSupportedNode } from '../../src/process/node-version.js'

const programs = ['dist/server.js', 'dist/cli.js', 'scripts/build.js', 'scripts/run.cjs']

/** Runs a program in this Node, which says that it has another version. */
function runAs(version: string, program: string) {
  const source = `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}' } })`
  const args = ['--import', `data:text/javascript,${encodeURIComponent(source)}`, program, '--version']
  return spawnSync(process.execPath, args, { encoding: 'utf8', env: { NODE_ENV: 'production' } })
}

t.test('a Node that is too old ends each program with one sentence', async (t) => {
  const versions = ['16.20.2', '18.20.4', '20.11.1', '20.19.1', '21.7.3', '22.11.0']
  for (const [version, program] of [
    ...versions.map((version) => [version, 'scripts/run.cjs'] as const),
    ...programs.map((program) => ['20.19.1', program] as const),
  ]) {
    const { status, stdout, stderr } = runAs(version, program)
    const message = `Node ${version} is too old for the Petstore inventory service; it needs 20.19.2, 22.12 or newer.\n`
    t.strictSame({ status, stdout, stderr }, { status: 1, stdout: '', stderr: message }, program)
  }
  const { engines } = JSON.parse(await readFile('package.json', 'utf8'))
  t.equal(engines.node, '^20.19.2 || >=22.12.0')
  for (const version of ['20.19.2', '20.20.0', '22.12.0', '23.0.0', '24.1.0', '30.0.0']) {
    const versions = t.intercept(process, 'versions', { value: { ...process.versions, node: version } })
    // It would end this process.
    requireSupportedNode()
    versions.restore()
  }
  t.match(runAs('20.19.2', 'dist/cli.js'), { status: 0, stderr: '' })
})

t.test('what runs before the check can be loaded by old versions', async (t) => {
  for (const program of ['dist/server.js', 'dist/cli.js', 'dist/process/node-version.js']) {
    const source = await readFile(program, 'utf8')
    const imports = Array.from(source.matchAll(/^import.*'(.*)'/gm), ([, name]) => name)
    t.strictSame(imports, program.includes('version') ? [] : ['./process/node-version.js'], program)
  }
})
