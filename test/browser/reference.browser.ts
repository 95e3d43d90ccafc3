import { readFile } from 'node:fs/promises'
import { createServer, request } from 'node:http'
import { createRequire } from 'node:module'
import type { Locator, Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { apiKey, startApp } from '../support/app.ts'
import { addEntries, testDatabase } from '../support/database.ts'
import { startChromium } from './chromium.ts'
import { visit } from './visit.ts'

/** No JavaScript number is this one. */
const PET = '9007199254740993'

const PHONE = { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true }

/** What Chromium itself writes to the console for a response with an error status. */
const REFUSED = 'Failed to load resource: the server responded with a status of 400 (Bad Request)'

const browser = await startChromium(t)

/** Starts the service with two entries and returns its port. */
async function startService(t: Test): Promise<number> {
  const database = await testDatabase(t)
  await addEntries(database, [
    ['1', 12, 'available'],
    [PET, 7, 'pending'],
  ])
  return (await startApp(t, database.url)).port
}

async function authorize(page: Page, key: string): Promise<void> {
  await page.getByRole('button', { name: 'Authorize' }).click()
  await page.getByRole('textbox', { name: 'auth-bearer-value' }).fill(key)
  await page.getByRole('button', { name: 'Apply credentials' }).click()
  await page.getByRole('button', { name: 'Close' }).last().click()
}

/** Opens an operation, whose element has all that follows. */
async function open(page: Page, operationId: string): Promise<Locator> {
  const operation = page.locator(`#operations-Inventory-${operationId}`)
  await operation.getByRole('button', { name: '/inventory' }).first().click()
  return operation
}

/** Sends the request and returns the status and the body that are shown for it. */
async function execute(operation: Locator): Promise<{ status: string; body: string }> {
  const [response] = await Promise.all([
    operation.page().waitForResponse(/\/v1\//),
    operation.getByRole('button', { name: 'Execute' }).click(),
  ])
  const shown = operation.locator('.live-responses-table')
  // The service names each of its answers, so this one is not taken for the one before.
  await shown.getByText(response.headers()['x-request-id'] ?? '').waitFor()
  return {
    status: await shown.locator('.response-col_status').last().innerText(),
    body: await shown.locator('.highlight-code code').first().innerText(),
  }
}

/** Both operations as a person tries them: list, update, list again, and an update that is refused. */
async function tryBoth(t: Test, page: Page): Promise<void> {
  await authorize(page, apiKey)
  const list = await open(page, 'listInventory')
  const before = await execute(list)
  t.match(before.status, '200')
  t.match(before.body, `"petId": ${PET},\n    "quantity": 7`)
  const update = await open(page, 'updateInventory')
  await update.getByPlaceholder('petId').fill(PET)
  await update.getByRole('textbox', { name: 'Request body' }).fill('{"quantity": 41}')
  const updated = await execute(update)
  t.match(updated.status, '200')
  t.match(updated.body, `"petId": ${PET},\n  "quantity": 41`)
  t.match((await execute(list)).body, `"petId": ${PET},\n    "quantity": 41`)
  await update.getByRole('textbox', { name: 'Request body' }).fill('{"quantity": -1}')
  const refused = await execute(update)
  t.match(refused.status, '400')
  t.match(refused.body, 'quantity must be an integer from 0 to 2147483647')
}

/** What axe finds against WCAG 2.2, levels A and AA, a line each. */
async function faultsOf(page: Page): Promise<string[]> {
  await page.evaluate(await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8'))
  return page.evaluate<string[]>(`
    axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] }).then(({ violations }) =>
      violations.flatMap(({ id, nodes }) => nodes.map(({ target }) => id + ': ' + target)))`)
}

for (const colorScheme of ['light', 'dark'] as const) {
  t.test(`lets a person with a key try both operations, in ${colorScheme}`, async (t) => {
    const port = await startService(t)
    const { page, complaints, picture } = await visit(t, browser, `http://127.0.0.1:${port}/docs`, {
      colorScheme,
    })
    await picture(`start-${colorScheme}`)
    t.strictSame(await faultsOf(page), [], 'axe finds nothing at first')
    await tryBoth(t, page)
    t.strictSame(await faultsOf(page), [], 'axe finds nothing with both operations open')
    await page.getByText('Error: Bad Request').scrollIntoViewIfNeeded()
    await picture(`refused-${colorScheme}`)
    await page.evaluate('document.querySelector("#operations-Inventory-listInventory").scrollIntoView()')
    await picture(`list-${colorScheme}`)
    t.strictSame(complaints, [REFUSED])
  })
}

t.test('works on a phone, without scrolling sideways', async (t) => {
  const port = await startService(t)
  const { page, complaints, picture } = await visit(t, browser, `http://127.0.0.1:${port}/docs`, PHONE)
  await tryBoth(t, page)
  t.equal(await page.evaluate<number>('document.documentElement.scrollWidth'), PHONE.viewport.width)
  t.strictSame(await faultsOf(page), [])
  await page.getByText('Error: Bad Request').scrollIntoViewIfNeeded()
  await picture('phone')
  t.strictSame(complaints, [REFUSED])
})

t.test('works by the keyboard alone', async (t) => {
  const port = await startService(t)
  const { page, complaints } = await visit(t, browser, `http://127.0.0.1:${port}/docs`)
  /** Presses Tab until the element has the focus. */
  const tabTo = async (element: Locator): Promise<void> => {
    for (let presses = 0; presses < 60; presses++) {
      await page.keyboard.press('Tab')
      if ((await element.and(page.locator(':focus')).count()) > 0) return
    }
    throw new Error(`60 presses of Tab do not lead to ${element}`)
  }
  const press = async (element: Locator): Promise<void> => {
    await tabTo(element)
    await page.keyboard.press('Enter')
  }
  await press(page.getByRole('button', { name: 'Authorize' }))
  await tabTo(page.getByRole('textbox', { name: 'auth-bearer-value' }))
  await page.keyboard.type(apiKey)
  await press(page.getByRole('button', { name: 'Apply credentials' }))
  await press(page.getByRole('button', { name: 'Close' }).last())
  await press(page.getByRole('button', { name: '/inventory/{petId}' }).first())
  const update = page.locator('.opblock.is-open')
  await tabTo(update.getByPlaceholder('petId'))
  await page.keyboard.type(PET)
  await tabTo(update.getByRole('textbox', { name: 'Request body' }))
  await page.keyboard.press('ControlOrMeta+a')
  await page.keyboard.type('{"quantity": 5}')
  await press(update.getByRole('button', { name: 'Execute' }))
  await update.locator('.live-responses-table').getByText(PET).waitFor()
  t.match(await update.locator('.live-responses-table').innerText(), '"quantity": 5')
  t.strictSame(complaints, [])
})

t.test('works under a path that a proxy puts before it', async (t) => {
  const port = await startService(t)
  const proxy = createServer((incoming, outgoing) => {
    const { method, headers, url = '' } = incoming
    if (!url.startsWith('/store/')) {
      outgoing.writeHead(404).end()
      return
    }
    const target = { host: '127.0.0.1', port, method, headers, path: url.slice('/store'.length) }
    incoming.pipe(
      request(target, (answer) => {
        outgoing.writeHead(answer.statusCode ?? 502, answer.headers)
        answer.pipe(outgoing)
      }),
    )
  })
  t.teardown(() => proxy.close())
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  const address = proxy.address()
  const proxyPort = typeof address === 'object' ? address?.port : undefined
  // With a slash too many, which leads to the page.
  const { page, complaints } = await visit(t, browser, `http://127.0.0.1:${proxyPort}/store/docs/`)
  t.equal(new URL(page.url()).pathname, '/store/docs')
  await tryBoth(t, page)
  t.strictSame(complaints, [REFUSED])
})

t.test('explains that a key is missing', async (t) => {
  const port = await startService(t)
  const { page } = await visit(t, browser, `http://127.0.0.1:${port}/docs`)
  const { status, body } = await execute(await open(page, 'listInventory'))
  t.match(status, '401')
  t.match(body, 'The API key is missing or invalid.')
})

t.test('shows the beginning of a large list', async (t) => {
  const database = await testDatabase(t)
  await database.query(
    `INSERT INTO inventory (pet_id, quantity, status) SELECT n, 1, 'sold' FROM generate_series(1, 100000) n`,
  )
  const { port } = await startApp(t, database.url)
  const { page, complaints } = await visit(t, browser, `http://127.0.0.1:${port}/docs`)
  await authorize(page, apiKey)
  const { body } = await execute(await open(page, 'listInventory'))
  t.match(body, /^\[\{"petId":1,/)
  t.match(body, /… and more: \d+ characters came in all/)
  t.strictSame(complaints, [])
})
