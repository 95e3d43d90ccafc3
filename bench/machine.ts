import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { cpus, release, totalmem, type } from 'node:os'
import { Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'

const Manifest = Type.Object({ version: Type.String() })

/** Returns what the results depend on besides the code, such as hardware and versions, as pairs of a name and a value. */
export function machine(): [name: string, value: string][] {
  const cores = cpus()
  return [
    ['Processor', `${cores[0]?.model.trim() ?? 'unknown'}, ${cores.length} cores`],
    ['Memory', `${Math.round(totalmem() / 2 ** 30)} GB`],
    ['System', `${distribution()}${type()} ${release()}`],
    ['Node', process.version],
    ['Packages', ['fastify', '@fastify/bearer-auth', 'pg', 'pino'].map(packageVersion).join(', ')],
    ['Commit', commit()],
  ]
}

function distribution(): string {
  const file = '/etc/os-release'
  const name = existsSync(file) ? /^PRETTY_NAME="(.*)"$/m.exec(readFileSync(file, 'utf8'))?.[1] : undefined
  return name === undefined ? '' : `${name}, `
}

/** Returns the commit, and whether files differ from it, or `unknown` outside a Git repository. */
function commit(): string {
  const git = (...args: string[]): string =>
    execFileSync('git', args, { encoding: 'utf8', stdio: 'pipe' }).trim()
  try {
    return `${git('rev-parse', '--short=12', 'HEAD')}${git('status', '--porcelain') === '' ? '' : ', with changes'}`
  } catch {
    return 'unknown'
  }
}

/** Returns the name and the installed version of a package. */
export function packageVersion(name: string): string {
  const file = new URL(`../node_modules/${name}/package.json`, import.meta.url)
  return `${name} ${Value.Parse(Manifest, JSON.parse(readFileSync(file, 'utf8'))).version}`
}
