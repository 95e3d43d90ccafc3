import { readFile } from 'node:fs/promises'
import t from 'tap'
import ts from 'typescript'
import { apiKey } from '../support/app.ts'
import { PET, visitPage } from './page.ts'

t.test('the client in TypeScript works in a browser', async (t) => {
  // A page of the service, because the service does not allow requests from other origins.
  const { page } = await visitPage(t)
  const source = await readFile('examples/typescript/client.ts', 'utf8')
  const { outputText } = ts.transpileModule(source, {
    compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext },
  })
  await page.route('**/client.js', (route) =>
    route.fulfill({ body: outputText, contentType: 'text/javascript' }),
  )
  const seen = await page.evaluate<unknown>(`import('/client.js').then(async ({ InventoryClient }) => {
    const client = new InventoryClient({ baseUrl: location.origin + '/v1', apiKey: '${apiKey}' })
    const list = await client.list()
    const isSame = list === (await client.list())
    const { petId, quantity } = await client.change(${PET}n, ({ quantity }) => quantity + 1)
    const { status, code, requestId } = await client.update(6n, 1).catch((error) => error)
    return { isSame, petId: String(petId), quantity, status, code, requestId: typeof requestId }
  })`)
  t.strictSame(seen, {
    isSame: true,
    petId: PET,
    quantity: 8,
    status: 404,
    code: 'not_found',
    requestId: 'string',
  })
})
