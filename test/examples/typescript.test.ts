import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { promisify } from 'node:util'
import createClient from 'openapi-fetch'
import t from 'tap'
import type { paths } from '../../examples/typescript/openapi.d.ts'
import { callsExactly, exampleOf } from '../support/examples.ts'

const tsx = createRequire(import.meta.url).resolve('tsx/cli')

t.test('the example in TypeScript calls the service', async (t) => {
  await callsExactly(t, await exampleOf(t, process.execPath, [tsx, 'examples/typescript/inventory.ts']))
})

t.test('its types are those of the description; npm run openapi writes them', async (t) => {
  const generator = ['examples/typescript/generate.ts', 'openapi.json']
  const { stdout } = await promisify(execFile)(process.execPath, [tsx, ...generator])
  t.equal(await readFile('examples/typescript/openapi.d.ts', 'utf8'), stdout)
})

// The type check is the test here: each of these lines must be refused by the compiler.
t.test('its types refuse what the service would', async () => {
  const client = createClient<paths>({ fetch: async () => Response.json([]), baseUrl: 'http://localhost' })
  const pet = { params: { path: { petId: 1n } } }
  // @ts-expect-error: there is no such path
  await client.GET('/pets')
  // @ts-expect-error: the list cannot be replaced
  await client.PUT('/inventory')
  // @ts-expect-error: a number would be rounded
  await client.PATCH('/inventory/{petId}', { params: { path: { petId: 1 } }, body: { quantity: 1 } })
  // @ts-expect-error: a quantity is a number
  await client.PATCH('/inventory/{petId}', { ...pet, body: { quantity: '1' } })
  // @ts-expect-error: a quantity is needed
  await client.PATCH('/inventory/{petId}', { ...pet, body: {} })
  await client.PATCH('/inventory/{petId}', { ...pet, body: { quantity: 1 } })
})
