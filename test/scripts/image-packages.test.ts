import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { promisify } from 'node:util'
import { Type } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import t from 'tap'

const run = promisify(execFile)
const tsx = createRequire(import.meta.url).resolve('tsx/cli')

const Lock = Type.Object({
  packages: Type.Record(
    Type.String(),
    Type.Object({
      version: Type.String(),
      dev: Type.Optional(Type.Literal(true)),
      optional: Type.Optional(Type.Literal(true)),
      devOptional: Type.Optional(Type.Literal(true)),
    }),
  ),
})

const Bill = Type.Object({
  metadata: Type.Object({ component: Type.Object({ name: Type.String(), version: Type.String() }) }),
  components: Type.Array(Type.Object({ name: Type.String(), version: Type.String() })),
})

t.test('the bill of materials has what npm installs in the image, and nothing else', async (t) => {
  const { stdout } = await run(process.execPath, [tsx, 'scripts/sbom.ts'])
  const { metadata, components } = Value.Parse(Bill, JSON.parse(stdout))
  const { packages } = Value.Parse(Lock, JSON.parse(await readFile('package-lock.json', 'utf8')))
  const installed = Object.entries(packages)
    .filter(([folder, { dev, optional, devOptional }]) => folder !== '' && !dev && !optional && !devOptional)
    .map(([folder, { version }]) => `${folder.replace(/^.*node_modules\//, '')}@${version}`)
  const listed = components.map(({ name, version }) => `${name}@${version}`)
  t.strictSame(listed.sort(), [...new Set(installed)].sort())
  t.equal(
    `${metadata.component.name}@${metadata.component.version}`,
    `petstore-inventory@${packages['']?.version}`,
  )
})

t.test('each package in the image has a license that is allowed', async (t) => {
  const { stdout } = await run(process.execPath, [tsx, 'scripts/licenses.ts'])
  t.match(stdout, /^fastify +[\d.]+ +MIT$/m)
})

t.test('the label of the image has the version of package.json', async (t) => {
  const { version } = JSON.parse(await readFile('package.json', 'utf8'))
  t.match(await readFile('Dockerfile', 'utf8'), `org.opencontainers.image.version="${version}"`)
})
