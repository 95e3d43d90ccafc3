import { type BrowserContextOptions, chromium, type Locator, type Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { browserPath } from '../faults/needs.ts'
import { apiKey, startService } from '../support/app.ts'

/** No JavaScript number is this one. */
export const PET = '9007199254740993'

export const entries = [
  ['1', 12, 'available'],
  [PET, 7, 'pending'],
] as const

/** What Chromium itself writes to the console for the two responses with an error status in `tryBoth`. */
export const REFUSED = ['412 (Precondition Failed)', '400 (Bad Request)'].map(
  (status) => `Failed to load resource: the server responded with a status of ${status}`,
)

// Chromium refuses to run as root in its sandbox.
const options = { chromiumSandbox: process.getuid?.() !== 0 }
const browser = await chromium.launch({ executablePath: (await browserPath()) ?? '', ...options })
t.teardown(() => browser.close())

/** A page that is open in a browser, and what it did that nobody asked it to. */
export interface Visit {
  readonly page: Page
  /** Errors and warnings in the console, exceptions, and requests that left the page's origin, in order. */
  readonly complaints: readonly string[]
}

/** Opens an address in a window of its own. */
export async function visit(t: Test, address: string, options: BrowserContextOptions = {}): Promise<Visit> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, ...options })
  t.teardown(() => context.close())
  const page = await context.newPage()
  const complaints: string[] = []
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(message.text())
  })
  page.on('pageerror', (error) => complaints.push(String(error)))
  page.on('request', (request) => {
    const url = new URL(request.url())
    if (url.protocol !== 'data:' && url.origin !== new URL(address).origin) complaints.push(request.url())
  })
  await page.goto(address)
  await page.getByRole('heading', { name: 'Update stock level' }).waitFor()
  return { page, complaints }
}

/** Visits the page of a service with two entries. */
export async function visitPage(
  t: Test,
  options: BrowserContextOptions = {},
): Promise<Visit & { port: number }> {
  const { port } = await startService(t, entries)
  return { ...(await visit(t, `http://127.0.0.1:${port}/docs`, options)), port }
}

export const enterKey = (page: Page, key = apiKey): Promise<void> =>
  page.getByRole('textbox', { name: 'API key' }).fill(key)

export const operationOf = (page: Page, operationId: 'listInventory' | 'updateInventory'): Locator =>
  page.locator(`#${operationId}`)

/** Sends the request and returns what is announced of the response, and its body. */
export async function execute(operation: Locator): Promise<{ outcome: string; body: string }> {
  const [response] = await Promise.all([
    operation.page().waitForResponse(/\/v1\//),
    operation.getByRole('button', { name: 'Execute' }).click(),
  ])
  // The service names each response, so this is not the one before.
  await operation
    .getByRole('group', { name: 'Response headers' })
    .getByText(response.headers()['x-request-id'] ?? '')
    .waitFor()
  return {
    outcome: await operation.locator('.outcome[role=status]').innerText(),
    body: await operation.getByRole('group', { name: 'Response body' }).innerText(),
  }
}

/** Both operations as a person tries them: list, update upon conditions, list again, and an update that is refused. */
export async function tryBoth(t: Test, page: Page): Promise<void> {
  await enterKey(page)
  const list = operationOf(page, 'listInventory')
  const before = await execute(list)
  t.match(before.outcome, /^200 OK · \d+ ms · 2 entries$/)
  t.match(before.body, `"petId": ${PET},\n    "quantity": 7`)
  const update = operationOf(page, 'updateInventory')
  await update.getByRole('textbox', { name: 'petId' }).fill(PET)
  await update.getByRole('textbox', { name: 'Request body' }).fill('{"quantity": 41}')
  await update.getByRole('textbox', { name: 'If-Match' }).fill('"8-pending"')
  t.match((await execute(update)).outcome, '412 Precondition Failed')
  await update.getByRole('textbox', { name: 'If-Match' }).fill('"7-pending"')
  const updated = await execute(update)
  t.match(updated.outcome, '200 OK')
  t.match(updated.body, `"petId": ${PET},\n  "quantity": 41`)
  t.match((await execute(list)).body, `"petId": ${PET},\n    "quantity": 41`)
  await update.getByRole('textbox', { name: 'Request body' }).fill('{"quantity": -1}')
  const refused = await execute(update)
  t.match(refused.outcome, '400 Bad Request')
  t.match(refused.outcome, 'invalid_request: quantity must be an integer from 0 to 2147483647')
  t.match(refused.body, '"status": 400')
}
