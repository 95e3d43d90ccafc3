import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'
import { promisify } from 'node:util'
import { type BrowserContextOptions, chromium, devices, type Locator, type Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { apiKey, startService } from '../support/app.ts'

// Chromium refuses to run as root in its sandbox.
const chromiumSandbox = process.getuid?.() !== 0
const { CHROME_PATH: executablePath = '/usr/bin/chromium' } = process.env
const browser = await chromium.launch({ executablePath, chromiumSandbox })
t.teardown(() => browser.close())

/** No JavaScript number is this one. */
const PET = '9007199254740993'

/** What Chromium itself writes to the console for a response with an error status. */
const REFUSED = 'Failed to load resource: the server responded with a status of 400 (Bad Request)'

/** Opens the page of a service with two entries, at a path that a proxy may put before it. */
async function open(
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

const field = (operation: Locator, name: string): Locator =>
  operation.getByRole('textbox', { name, exact: true })

const enterKey = (page: Page, key = apiKey): Promise<void> =>
  page.getByRole('textbox', { name: 'API key' }).fill(key)

const press = (operation: Locator): Promise<void> =>
  operation.getByRole('button', { name: 'Execute' }).click()

/** What is announced of the answer to a request. */
const statusOf = (operation: Locator): Locator => operation.locator('.panel [role=status]').first()

/** Sends the request and returns what is announced of the response, and its body. */
async function execute(operation: Locator): Promise<{ outcome: string; body: string }> {
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

/** Returns what axe finds against WCAG 2.2, levels A and AA, and against its best practices, a line each. */
async function violationsOf(page: Page): Promise<string[]> {
  await page.evaluate(await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8'))
  return page.evaluate<string[]>(`
    axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }).then(
      ({ violations }) => violations.flatMap(({ id, nodes }) => nodes.map(({ target }) => id + ': ' + target)))`)
}

async function expectInView(t: Test, ...elements: Locator[]): Promise<void> {
  for (const element of (await Promise.all(elements.map((locator) => locator.all()))).flat()) {
    const { y = -1 } = (await element.boundingBox()) ?? {}
    const height = element.page().viewportSize()?.height ?? 0
    t.ok(y >= 0 && y < height, `${await element.innerText()} is in view`)
  }
}

for (const [name, options, prefix] of [
  ['a light desktop', {}, ''],
  // 320 pixels wide.
  ['a dark phone', { ...devices['iPhone SE'], colorScheme: 'dark' }, ''],
  ['a light phone', devices['iPhone SE'], ''],
  ['a dark desktop, under a path that a proxy puts before it', { colorScheme: 'dark' }, '/store'],
] as const) {
  t.test(`a person with a key can try both operations: ${name}`, async (t) => {
    const { page, list, update, complaints } = await open(t, options, { prefix })
    t.strictSame(await violationsOf(page), [], 'axe finds nothing at first')
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
    await page.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")
    t.strictSame(await violationsOf(page), [], 'nor with two responses, and all documented ones open')
    const width = await page.evaluate<number>('document.documentElement.scrollWidth')
    t.equal(width, page.viewportSize()?.width, 'it does not scroll sideways')
    t.strictSame(complaints, [REFUSED])
  })
}

for (const viewport of [
  { width: 1280, height: 800 },
  { width: 390, height: 844 },
]) {
  t.test(`${viewport.width} pixels wide: operations and answers need no scrolling`, async (t) => {
    const { page, list, update } = await open(t, { viewport })
    const operations = page.locator('#operations li')
    t.strictSame(await operations.allInnerTexts(), [
      'GET\nList inventory\n/inventory',
      'PATCH\nUpdate stock level experimental\n/inventory/{petId}',
    ])
    await expectInView(t, operations)
    const colors = `Array.from(document.querySelectorAll('#operations .badge'), (badge) => getComputedStyle(badge).color)`
    const { size } = new Set(await page.evaluate<string[]>(colors))
    t.equal(size, 3, 'GET, PATCH and experimental differ in color')
    await operations.getByRole('link', { name: 'Update stock level' }).click()
    await expectInView(t, update.getByRole('heading', { name: 'Update stock level' }))

    await enterKey(page)
    await field(update, 'petId').fill('6')
    await execute(update)
    await expectInView(t, statusOf(update), update.getByRole('group', { name: 'Response body' }))
    t.match(await statusOf(update).innerText(), /^404 Not Found not_found: No inventory entry exists/)
    await execute(list)
    await expectInView(t, statusOf(list))
  })
}

t.test('it says where the service is, who creates keys, what a form requires, and each error', async (t) => {
  const publicUrls = ['https://api.example.com/v1', 'https://staging.example.com/v1']
  const { page, list, update } = await open(t, {}, { publicUrls })
  for (const text of publicUrls) t.ok(await page.getByText(text, { exact: true }).isVisible())
  t.ok(await page.getByText('inventory keys create').isVisible())
  t.notMatch(await page.locator('body').innerText(), /npm |examples\/|\.data/)
  for (const [operation, labels, headers] of [
    [list, [], ['If-None-Match']],
    [update, ['petId', 'Request body'], ['If-Match', 'If-None-Match']],
  ] as const) {
    const form = operation.locator('form')
    t.strictSame(await form.locator('label:visible').allInnerTexts(), labels)
    await form.getByText('Headers', { exact: true }).click()
    t.strictSame(await form.locator('details label:visible').allInnerTexts(), headers)
  }
  const notFound = await update.locator('[id="updateInventory-404"]').innerText()
  t.equal(notFound, '404 not_found No entry exists for this petId')
  const errors = page.locator('details:has([id*="Inventory-4"], [id*="Inventory-5"])')
  t.ok((await errors.count()) > 15)
  for (const error of await errors.all()) {
    t.notOk(await error.locator('pre').isVisible())
    await error.locator('summary').click()
    const { code, ...rest } = JSON.parse(await error.locator('pre').innerText())
    t.match(await error.locator('summary').innerText(), ` ${code} `)
    t.strictSame(Object.keys(rest), ['message', 'status'])
  }
})

t.test('a rejected field replaces the answer and gets the focus, until its value changes', async (t) => {
  const { page, update, complaints } = await open(t)
  await enterKey(page)
  await field(update, 'petId').fill(PET)
  for (const [name, wrong, problem] of [
    ['petId', '', 'petId is required.'],
    ['If-Match', '"…"', 'If-Match has a character that cannot be sent.'],
    ['API key', 'ключ', 'API key has a character that cannot be sent.'],
  ] as const) {
    await execute(update)
    const input = name === 'API key' ? page.locator('#key') : update.locator(`[id="updateInventory-${name}"]`)
    const right = await input.inputValue()
    const headers = update.getByText('Headers', { exact: true })
    if (name === 'If-Match') await headers.click()
    await input.fill(wrong)
    // Closes the part with the rejected field.
    if (name === 'If-Match') await headers.click()
    await press(update)
    await page.getByText(problem).waitFor()
    t.equal(await statusOf(update).innerText(), '')
    t.equal(await update.getByRole('group', { name: 'Response body' }).count(), 0)
    t.equal(await input.and(page.locator(':focus')).getAttribute('aria-invalid'), 'true')
    await page.keyboard.type('1')
    t.equal(await page.getByText(problem).count(), 0)
    t.equal(await input.getAttribute('aria-invalid'), 'false')
    await input.fill(right)
  }
  t.strictSame(complaints, [])
})

t.test('a wrong key or petId, a failed condition and a missing response are explained', async (t) => {
  const { page, list, update } = await open(t)
  const { outcome } = await execute(list)
  t.match(outcome, /^401 Unauthorized unauthorized: The API key is missing or invalid\./)
  await statusOf(list).getByRole('link', { name: 'API key' }).click()
  await page.locator('#key:focus').waitFor()
  await enterKey(page, ` Bearer ${apiKey} `)
  t.match((await execute(list)).outcome, '200 OK', 'a key that is pasted with its scheme')

  await field(update, 'petId').fill('9223372036854775808')
  const outOfRange = /^400 Bad Request invalid_request: petId .* from -9223372036854775808 to/
  t.match((await execute(update)).outcome, outOfRange)
  await field(update, 'petId').fill(PET)
  await update.getByText('Headers', { exact: true }).click()
  for (const [tag, status] of Object.entries({ '"8-pending"': '412', '"7-pending"': '200' })) {
    await field(update, 'If-Match').fill(tag)
    t.match((await execute(update)).outcome, status)
  }
  const emptyError = { status: 502, contentType: 'application/json', body: '' }
  await page.route(/\/v1\//, (route) => route.fulfill(emptyError), { times: 1 })
  await press(update)
  await statusOf(update).getByText('502 Bad Gateway The body is not an Error of the service.').waitFor()
  await page.route(/\/v1\//, (route) => route.abort())
  for (const [operation, advice] of [
    [list, 'Try again.'],
    [update, 'The update may have been made.'],
  ] as const) {
    await press(operation)
    const cause = 'The service cannot be reached, or the connection was lost.'
    await statusOf(operation).getByText(`No response ${cause} ${advice}`, { exact: true }).waitFor()
    t.equal(await operation.getByRole('group', { name: 'Response body' }).count(), 0)
  }
})

t.test('operations, responses and schemas have links, and the navigation marks what is read', async (t) => {
  const { page, port } = await open(t)
  const current = page.locator('nav [aria-current]')
  t.equal(await current.innerText(), 'Introduction')
  for (const name of ['Update stock level', 'Introduction']) {
    await page.getByRole('navigation').getByRole('link', { name }).click()
    await current.getByText(name).waitFor()
  }
  for (const id of ['updateInventory', 'updateInventory-412', 'schema-Error']) {
    await page.goto(`http://127.0.0.1:${port}/docs#${id}`)
    await page.reload()
    await expectInView(t, page.locator(`:is(h2, h3) > a[href="#${id}"], summary[id="${id}"]`))
  }
  await page.locator('[id="updateInventory-404"]').click()
  t.equal(new URL(page.url()).hash, '#updateInventory-404', 'the address leads to the opened response')
})

t.test('without JavaScript, the page says that it needs it, and nothing else', async (t) => {
  const { port } = await startService(t)
  const page = await browser.newPage({ javaScriptEnabled: false })
  await page.goto(`http://127.0.0.1:${port}/docs`)
  const text = 'Petstore Inventory API\n\nThis page needs JavaScript. It displays openapi.json.'
  t.equal(await page.locator('body').innerText(), text)
})

t.test('a sample can be copied, and the page says so until the sample changes', async (t) => {
  const { page, update, complaints } = await open(t, { permissions: ['clipboard-read', 'clipboard-write'] })
  await update.getByRole('button', { name: 'Copy' }).click()
  await update.getByText('Copied.').waitFor()
  const sample = await update.getByRole('group', { name: 'Sample' }).innerText()
  t.equal(await page.evaluate('navigator.clipboard.readText()'), sample)
  await field(update, 'petId').fill(PET)
  t.equal(await update.getByText('Copied.').count(), 0)
  t.match(await update.getByRole('group', { name: 'Sample' }).innerText(), `/v1/inventory/${PET}'`)
  t.strictSame(complaints, [])
})

t.test('a description that cannot be loaded is announced', async (t) => {
  const { page } = await open(t)
  await page.route('**/openapi.json', (route) => route.fulfill({ status: 503 }))
  await page.reload()
  const message = 'could not be loaded. Error: The service answered with the status 503.'
  await page.getByRole('alert').getByText(message).waitFor()
  t.equal(await page.getByRole('button').count(), 0)
})

t.test('each request has runnable samples in four languages', async (t) => {
  const { list, update, complaints } = await open(t)
  await field(update, 'Request body').fill(`{"quantity": 3,\n "note": "it's \\"so\\""}`)
  await list.getByText('Headers', { exact: true }).click()
  await field(list, 'If-None-Match').fill(`"it's another"`)
  const goFile = path.join(t.testdir(), 'main.go')
  for (const [language, program, ...options] of [
    ['curl', 'bash', '-c'],
    ['JavaScript', 'node', '--input-type=module', '--eval'],
    ['Python', 'python3', '-c'],
    ['Go', 'go', 'run', goFile],
  ] as const) {
    await update.getByRole('radio', { name: language }).click()
    /** Runs the sample of an operation, and returns what it prints. */
    const run = async (operation: Locator, petId?: string): Promise<string> => {
      if (petId !== undefined) await field(operation, 'petId').fill(petId)
      const sample = await operation.getByRole('group', { name: 'Sample' }).innerText()
      await writeFile(goFile, sample)
      const args = language === 'Go' ? options : [...options, sample]
      const env = { ...process.env, INVENTORY_KEY: apiKey }
      // A program that exits with an error rejects with what it printed.
      const { stdout, stderr } = await promisify(execFile)(program, args, { env }).catch(
        (error: { stdout: string; stderr: string }) => error,
      )
      return stdout + stderr
    }
    t.match(await run(list), PET, language)
    t.match(await run(update, PET), new RegExp(`${PET}[^]*\\b3\\b`), language)
    t.match(await run(update, '6'), /not_found.*No inventory entry exists for petId 6/, language)
  }
  t.strictSame(complaints, [])
})

t.test('the page works by the keyboard alone, and shows where the focus is', async (t) => {
  const { page, update, complaints } = await open(t)
  const focused = page.locator(':focus')
  /** Presses Tab until the element has the focus. */
  const tabTo = async (element: Locator): Promise<void> => {
    do {
      await page.keyboard.press('Tab')
      t.match(await page.evaluate('getComputedStyle(document.activeElement).outline'), 'solid 3px')
      await expectInView(t, focused)
    } while ((await element.and(focused).count()) === 0)
  }
  await tabTo(page.getByRole('textbox', { name: 'API key' }))
  await page.keyboard.type(apiKey)
  await tabTo(field(update, 'petId'))
  await page.keyboard.type(PET)
  await tabTo(field(update, 'Request body'))
  await page.keyboard.press('ControlOrMeta+a')
  await page.keyboard.type('{"quantity": 5}')
  await tabTo(update.getByRole('button', { name: 'Execute' }))
  await page.keyboard.press('Enter')
  await update.getByRole('group', { name: 'Response body' }).getByText('"quantity": 5').waitFor()
  await tabTo(page.locator('#schemas a').first())
  t.strictSame(complaints, [])
})

t.test('a large list is truncated, and the headers that callers use come first', async (t) => {
  const { page, list, database, complaints } = await open(t)
  await database.query(`INSERT INTO inventory SELECT ${PET} + n, 1, 'sold' FROM generate_series(1, 199998) n`)
  await enterKey(page)
  const { outcome, body } = await execute(list)
  t.equal(outcome, '200 OK 200,000 entries, showing the first 1,000')
  t.equal(body.match(/"petId"/g)?.length, 1000)
  t.match(body, /\n {2}\},\n {2}…\n\]$/)
  const headers = await list.getByRole('group', { name: 'Response headers' }).innerText()
  t.match(headers, /^etag: .*\nx-request-id: /)
  t.notMatch(headers, /^(connection|keep-alive|date):/m)
  t.strictSame(complaints, [])
})
