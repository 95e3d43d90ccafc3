import { readFileSync } from 'node:fs'
import { Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'

const manifest = new URL('../../package.json', import.meta.url)

/** The version of this software. */
export const { version } = Value.Parse(
  Type.Object({ version: Type.String() }),
  JSON.parse(readFileSync(manifest, 'utf8')),
)
