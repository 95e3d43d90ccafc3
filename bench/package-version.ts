import { readFileSync } from 'node:fs'
import { Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'

const Manifest = Type.Object({ version: Type.String() })

/** The name and the installed version of a package. */
export function packageVersion(name: string): string {
  const file = new URL(`../node_modules/${name}/package.json`, import.meta.url)
  return `${name} ${Value.Parse(Manifest, JSON.parse(readFileSync(file, 'utf8'))).version}`
}
