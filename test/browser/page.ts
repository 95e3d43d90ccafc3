import { type BrowserContextOptions, chromium, type Locator, type Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { apiKey, startService } from '../support/app.ts'

// Chromium refuses to run as root in its sandbox.
const chromiumSandbox = process.getuid?.() !== 0
const { CHROME_PATH: executablePath = '/usr/bin/chromium' } = process.env
const browser = await chromium.launch({ executablePath, chromiumSandbox })
t.teardown(() => browser.close())

/** No JavaScript number is this one. */
export const PET = '9007199254740993'

/** What Chromium itself writes to the console for a response with an error status. */
export const REFUSED = 'Failed to load resource: the server responded with a status of 400 (Bad Request)'

/** The page of a service with two entries, open in a window of its own. */
type Visit = Awaited<ReturnType<typeof open>>

/** Opens the page of a service with two entries, at a path that a proxy may put before it. */
export async function open(
  t: Test,
  options: BrowserContextOptions = {},
  { publicUrls = [], prefix = '' }: { publicUrls?: string[]; prefix?: string } = {},
) {
  const entries = ['1,12,available', `${PET},7,pending`]
  const { port, database } = await startService(t, entries, { env: { PUBLIC_URLS: publicUrls.join() } })
  const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, ...options })
  t.teardown(() => context.close())
  const page = await context.newPage()
  /** Errors and warnings in the console, exceptions, and requests that left the page's origin, in order. */
  const complaints: string[] = []
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(message.text())
  })
  page.on('pageerror', (error) => complaints.push(String(error)))
  page.on('request', (request) => {
    const url = new URL(request.url())
    if (url.protocol !== 'data:' && url.port !== String(port)) complaints.push(request.url())
  })
  if (prefix !== '')
    await page.route('**', async (route) => {
      const url = new URL(route.request().url())
      if (!url.pathname.startsWith(prefix)) return route.abort()
      url.pathname = url.pathname.slice(prefix.length)
      return route.fulfill({ response: await route.fetch({ url: url.href, maxRedirects: 0 }) })
    })
  await page.goto(`http://127.0.0.1:${port}${prefix}/docs`)
  await page.getByRole('heading', { name: 'Update stock level' }).waitFor()
  const [list, update] = [page.locator('#listInventory'), page.locator('#updateInventory')]
  return { page, port, list, update, database, complaints }
}

export const field = (operation: Locator, name: string): Locator =>
  operation.getByRole('textbox', { name, exact: true })

export const enterKey = (page: Page, key = apiKey): Promise<void> =>
  page.getByRole('textbox', { name: 'API key' }).fill(key)

export const press = (operation: Locator): Promise<void> =>
  operation.getByRole('button', { name: 'Execute' }).click()

/** What is announced of the answer to a request. */
export const statusOf = (operation: Locator): Locator => operation.locator('.panel [role=status]').first()

/** Sends the request and returns what is announced of the response, and its body. */
export async function execute(operation: Locator): Promise<{ outcome: string; body: string }> {
  const [response] = await Promise.all([operation.page().waitForResponse(/\/v1\//), press(operation)])
  // The service names each response, so this is not the one before.
  await operation
    .getByRole('group', { name: 'Response headers' })
    .getByText(response.headers()['x-request-id'] ?? '')
    .waitFor()
  return {
    outcome: await statusOf(operation).innerText(),
    body: await operation.getByRole('group', { name: 'Response body' }).innerText(),
  }
}

/** Both operations as a person tries them: list, update, list again, and an update that is refused. */
export async function tryBoth(t: Test, { page, list, update }: Visit): Promise<void> {
  await enterKey(page)
  const before = await execute(list)
  t.equal(before.outcome, '200 OK 2 entries')
  t.match(before.body, `"petId": ${PET},\n    "quantity": 7`)
  await field(update, 'petId').fill(PET)
  await field(update, 'Request body').fill('{"quantity": 41}')
  t.match(await execute(update), { outcome: '200 OK', body: `"petId": ${PET},\n  "quantity": 41` })
  t.match((await execute(list)).body, `"petId": ${PET},\n    "quantity": 41`)
  await field(update, 'Request body').fill('{"quantity": -1}')
  t.match(await execute(update), {
    outcome: /^400 Bad Request invalid_request: quantity must be >= 0\./,
    body: '"status": 400',
  })
}
