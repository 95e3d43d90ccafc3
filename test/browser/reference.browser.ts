import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { createServer, request } from 'node:http'
import { createRequire } from 'node:module'
import path from 'node:path'
import { promisify } from 'node:util'
import type { BrowserContextOptions, Locator, Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { pathOf } from '../faults/needs.ts'
import { apiKey, startService } from '../support/app.ts'
import { listen } from '../support/listen.ts'
import { startChromium } from './chromium.ts'
import { type Visit, visit } from './visit.ts'

/** No JavaScript number is this one. */
const PET = '9007199254740993'

/** The widths of a small and of a common phone. */
const PHONE_WIDTHS = [320, 390]

const phone = (width: number): BrowserContextOptions => ({
  viewport: { width, height: 740 },
  isMobile: true,
  hasTouch: true,
})

/** What Chromium itself writes to the console for a response with an error status. */
const REFUSED = 'Failed to load resource: the server responded with a status of 400 (Bad Request)'

const browser = await startChromium(t)

const entries = [
  ['1', 12, 'available'],
  [PET, 7, 'pending'],
] as const

/** Visits the page of a service with two entries. */
async function visitPage(t: Test, options: BrowserContextOptions = {}): Promise<Visit & { port: number }> {
  const { port } = await startService(t, entries)
  return { ...(await visit(t, browser, `http://127.0.0.1:${port}/docs`, options)), port }
}

const enterKey = (page: Page, key = apiKey): Promise<void> =>
  page.getByRole('textbox', { name: 'API key' }).fill(key)

const operationOf = (page: Page, operationId: 'listInventory' | 'updateInventory'): Locator =>
  page.locator(`#${operationId}`)

/** Sends the request and returns what is announced of the response, and its body. */
async function execute(operation: Locator): Promise<{ outcome: string; body: string }> {
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

/** Both operations as a person tries them: list, update, list again, and an update that is refused. */
async function tryBoth(t: Test, page: Page): Promise<void> {
  await enterKey(page)
  const list = operationOf(page, 'listInventory')
  const before = await execute(list)
  t.match(before.outcome, /^200 OK · \d+ ms · 2 entries$/)
  t.match(before.body, `"petId": ${PET},\n    "quantity": 7`)
  const update = operationOf(page, 'updateInventory')
  await update.getByRole('textbox', { name: 'petId' }).fill(PET)
  await update.getByRole('textbox', { name: 'Request body' }).fill('{"quantity": 41}')
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

/** The elements that a person can use, which have to be neither covered nor cut off. */
const CONTROLS = 'main :is(a, button, input, textarea, pre, summary)'

/** Scrolls to each control, and returns those whose middle shows another element. */
function coveredControls(page: Page): Promise<string[]> {
  return page.evaluate<string[]>(`
    [...document.querySelectorAll('${CONTROLS}')].flatMap((control) => {
      control.scrollIntoView({ block: 'center', behavior: 'instant' })
      const { left, top, width, height } = control.getClientRects()[0]
      const shown = document.elementFromPoint(left + width / 2, top + Math.min(height, 40) / 2)
      const own = control.closest('label') ?? control
      return own.contains(shown) ? [] : [control.outerHTML.slice(0, 200)]
    })`)
}

/** Returns the numbers in blocks of code that are broken between two lines. */
function brokenNumbers(page: Page): Promise<string[]> {
  return page.evaluate<string[]>(`
    [...document.querySelectorAll('pre code')].flatMap(({ firstChild }) =>
      [...(firstChild?.data ?? '').matchAll(/\\d+/g)].flatMap(({ 0: digits, index }) => {
        const range = document.createRange()
        range.setStart(firstChild, index)
        range.setEnd(firstChild, index + digits.length)
        return new Set([...range.getClientRects()].map(({ top }) => top)).size === 1 ? [] : [digits]
      }))`)
}

/** Returns what axe finds against WCAG 2.2, levels A and AA, and against its best practices, a line each. */
async function violationsOf(page: Page): Promise<string[]> {
  await page.evaluate(await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8'))
  return page.evaluate<string[]>(`
    axe.run({
      runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
      rules: { 'label-content-name-mismatch': { enabled: true } },
    }).then(({ violations }) =>
      violations.flatMap(({ id, nodes }) => nodes.map(({ target }) => id + ': ' + target)))`)
}

const screens = [
  { name: 'desktop', options: {} },
  ...PHONE_WIDTHS.map((width) => ({ name: `phone-${width}`, options: phone(width) })),
]

for (const { name, options } of screens) {
  for (const colorScheme of ['light', 'dark'] as const) {
    t.test(`lets a person with a key try both operations: ${name}, ${colorScheme}`, async (t) => {
      const { page, complaints, picture } = await visitPage(t, {
        ...options,
        colorScheme,
      })
      await picture(`start-${name}-${colorScheme}`)
      t.strictSame(await violationsOf(page), [], 'axe finds nothing at first')
      await tryBoth(t, page)
      for (const id of ['listInventory', 'updateInventory'] as const) {
        await page.evaluate(`document.querySelector('#${id}').scrollIntoView()`)
        await picture(`${id}-${name}-${colorScheme}`)
      }
      await operationOf(page, 'updateInventory')
        .getByRole('button', { name: 'Execute' })
        .scrollIntoViewIfNeeded()
      await operationOf(page, 'updateInventory')
        .getByText('invalid_request: quantity')
        .scrollIntoViewIfNeeded()
      await picture(`refused-${name}-${colorScheme}`)
      await page.evaluate(`document.querySelector('#updateInventory-404').scrollIntoView()`)
      await picture(`responses-${name}-${colorScheme}`)
      await page.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")
      t.strictSame(
        await violationsOf(page),
        [],
        'axe finds nothing with two responses, and all documented ones open',
      )
      t.equal(
        await page.evaluate<number>('document.documentElement.scrollWidth'),
        page.viewportSize()?.width,
        'it does not scroll sideways',
      )
      t.strictSame(await coveredControls(page), [])
      t.strictSame(await brokenNumbers(page), [])
      t.strictSame(complaints, [REFUSED])
    })
  }
}

t.test(
  'says without any input where the service is, who creates keys and what is experimental',
  async (t) => {
    const { page, complaints, port } = await visitPage(t)
    t.ok(await page.getByText(`http://127.0.0.1:${port}/v1`, { exact: true }).isVisible())
    t.ok(await page.getByText('inventory keys create').isVisible())
    t.equal(await operationOf(page, 'listInventory').getByText('experimental', { exact: true }).count(), 0)
    t.ok(await operationOf(page, 'updateInventory').getByText('experimental', { exact: true }).isVisible())
    t.strictSame(complaints, [])
  },
)

t.test('the page lists the public addresses', async (t) => {
  const publicUrls = ['https://api.example.com/v1', 'https://staging.example.com/v1']
  const { port } = await startService(t, [], { env: { PUBLIC_URLS: publicUrls.join() } })
  const { page } = await visit(t, browser, `http://127.0.0.1:${port}/docs`)
  for (const url of publicUrls) t.ok(await page.getByText(url, { exact: true }).isVisible())
})

t.test('every error is shown with its body and code', async (t) => {
  const { page } = await visitPage(t)
  const description = await page.evaluate<{
    paths: Record<string, Record<string, { operationId: string; responses: Record<string, unknown> }>>
  }>(`fetch('openapi.json').then((response) => response.json())`)
  let count = 0
  for (const methods of Object.values(description.paths)) {
    for (const { operationId, responses } of Object.values(methods)) {
      for (const status of Object.keys(responses).filter((status) => !/^[23]/.test(status))) {
        count += 1
        const response = page.locator(`details:has([id="${operationId}-${status}"])`)
        const example = response.locator('pre')
        t.notOk(await example.isVisible(), `${operationId} ${status} is collapsed`)
        await page.emulateMedia({ media: 'print' })
        t.ok(await example.isVisible(), `${operationId} ${status} is printed`)
        await page.emulateMedia({ media: 'screen' })
        await response.locator('summary').click()
        t.ok(await example.isVisible(), `${operationId} ${status} is open`)
        const { code, ...rest } = JSON.parse(await example.innerText())
        t.match(code, /^[a-z_]+$/)
        t.strictSame(Object.keys(rest), ['message', 'status'])
      }
    }
  }
  t.ok(count > 20)
})

t.test('removes the previous response when a field is refused, and leads to the field', async (t) => {
  const { page, complaints } = await visitPage(t)
  await enterKey(page)
  const update = operationOf(page, 'updateInventory')
  const petId = update.getByRole('textbox', { name: 'petId' })
  for (const [value, problem] of [
    ['', 'petId is required.'],
    ['1.5', /must be an integer from -9223372036854775808 to 9223372036854775807/],
    ['9223372036854775808', /must be an integer/],
  ] as const) {
    await petId.fill(PET)
    t.match((await execute(update)).outcome, '200')
    t.equal(await petId.getAttribute('aria-invalid'), 'false')
    await petId.fill(value)
    await update.getByRole('button', { name: 'Execute' }).click()
    await update.getByText(problem).waitFor()
    t.equal(await update.getByRole('group', { name: 'Response body' }).count(), 0)
    t.equal(await update.locator('.outcome').innerText(), '')
    t.equal(await petId.getAttribute('aria-invalid'), 'true')
    t.equal(await petId.and(page.locator(':focus')).count(), 1)
  }
  await petId.fill(PET)
  await update.getByRole('textbox', { name: 'If-Match' }).fill('"…"')
  await update.getByRole('button', { name: 'Execute' }).click()
  await update.getByText('If-Match has a character that is not allowed in a header.').waitFor()
  await update.getByRole('textbox', { name: 'If-Match' }).fill('')
  await enterKey(page, 'ключ')
  await update.getByRole('button', { name: 'Execute' }).click()
  await update.getByText('The API key has a character that is not allowed in a header.').waitFor()
  await page.locator('#key:focus').waitFor()
  t.strictSame(complaints, [])
})

t.test('a missing response is reported', async (t) => {
  const { page } = await visitPage(t)
  await enterKey(page)
  const list = operationOf(page, 'listInventory')
  await execute(list)
  await page.route(/\/v1\//, (route) => route.abort())
  await list.getByRole('button', { name: 'Execute' }).click()
  await list.getByText('No response: the service cannot be reached').waitFor()
  t.equal(await list.getByRole('group', { name: 'Response body' }).count(), 0)
})

t.test('conditions are sent as entered', async (t) => {
  const { page } = await visitPage(t)
  await enterKey(page)
  const update = operationOf(page, 'updateInventory')
  await update.getByRole('textbox', { name: 'petId' }).fill(PET)
  await update.getByRole('textbox', { name: 'If-Match' }).fill('"8-pending"')
  t.match((await execute(update)).outcome, '412 Precondition Failed')
  await update.getByRole('textbox', { name: 'If-Match' }).fill('"7-pending"')
  t.match((await execute(update)).outcome, '200')
})

t.test('operations, responses and schemas have links', async (t) => {
  const docs = `http://127.0.0.1:${(await startService(t)).port}/docs`
  for (const id of ['updateInventory', 'updateInventory-412', 'schema-Error']) {
    const { page } = await visit(t, browser, `${docs}#${id}`)
    const isShown = async (): Promise<void> => {
      await page.locator(`[id="${id}"]:focus`).waitFor()
      const link = page.locator(`:is(h2, h3) > a[href="#${id}"], a:text-is("#${id}")`)
      const { y = -1 } = (await link.boundingBox()) ?? {}
      t.ok(y >= 0 && y < (page.viewportSize()?.height ?? 0), `the link to ${id} is in view`)
    }
    await isShown()
    await page.goto(docs)
    await page.evaluate(`location.hash = '${id}'`)
    await isShown()
  }
})

t.test('each request has runnable samples in four languages', async (t) => {
  const { page, complaints, port } = await visitPage(t)
  const list = operationOf(page, 'listInventory')
  const update = operationOf(page, 'updateInventory')
  await update.getByRole('textbox', { name: 'If-None-Match' }).fill(`"it's-pending"`)
  await update
    .getByRole('textbox', { name: 'Request body' })
    .fill(`{"quantity": 3,\n "note": "it's \\"so\\""}`)
  const goFile = path.join(t.testdir(), 'main.go')
  const programs = {
    curl: ['bash', '-c'],
    JavaScript: ['node', '--input-type=module', '--eval'],
    Python: ['python3', '-c'],
    Go: ['go', 'run', goFile],
  }
  const env = { ...process.env, INVENTORY_KEY: apiKey }
  for (const [language, [program = '', ...options]] of Object.entries(programs)) {
    await update.getByText(language, { exact: true }).click()
    /** Runs the sample of an operation with a value in a field, and returns what it prints. */
    const run = async (operation: Locator, field: string, value: string): Promise<string> => {
      t.ok(await operation.getByRole('radio', { name: language }).isChecked(), 'one choice serves both')
      await operation.getByRole('textbox', { name: field, exact: true }).fill(value)
      const sample = await operation.getByRole('group', { name: 'Sample' }).innerText()
      t.match(sample, `127.0.0.1:${port}/v1/inventory`)
      t.match(sample, 'INVENTORY_KEY')
      await writeFile(goFile, sample)
      const child = promisify(execFile)(program, language === 'Go' ? options : [...options, sample], { env })
      // A program that exits with an error rejects with what it printed.
      const { stdout, stderr } = await child.catch((error: { stdout: string; stderr: string }) => error)
      return stdout + stderr
    }
    if ((await pathOf(program)) === undefined) continue
    t.match(await run(list, 'If-None-Match', ''), PET, language)
    t.match(await run(update, 'petId', PET), new RegExp(`${PET}[^]*\\b3\\b`), language)
    const unchanged = await run(list, 'If-None-Match', '*')
    if (language !== 'curl') t.equal(unchanged, 'The list has not changed.\n', language)
    t.match(await run(update, 'petId', '6'), /not_found.*No inventory entry exists for petId 6/, language)
  }
  t.strictSame(complaints, [])
})

t.test('marks the selected language where the system replaces all colors', async (t) => {
  const { page } = await visitPage(t, { forcedColors: 'active' })
  const [selected, ...others] = await page.evaluate<string[]>(`
    [...document.querySelectorAll('#listInventory .languages span')]
      .map((language) => /\\d+, \\d+, \\d+/.exec(getComputedStyle(language).backgroundColor)[0])`)
  t.equal(others.length, 3)
  t.notOk(others.includes(selected ?? ''), `${selected} is not ${others}`)
})

t.test('works by the keyboard alone', async (t) => {
  const { page, complaints } = await visitPage(t)
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
  await tabTo(page.getByRole('textbox', { name: 'API key' }))
  await page.keyboard.type(apiKey)
  t.equal(await page.locator('#key:focus').count(), 1)
  const update = operationOf(page, 'updateInventory')
  await tabTo(update.getByRole('textbox', { name: 'petId' }))
  await page.keyboard.type(PET)
  await tabTo(update.getByRole('textbox', { name: 'Request body' }))
  await page.keyboard.press('ControlOrMeta+a')
  await page.keyboard.type('{"quantity": 5}')
  await press(update.getByRole('button', { name: 'Execute' }))
  await update.getByRole('group', { name: 'Response body' }).getByText('"quantity": 5').waitFor()
  t.equal(await update.locator('button:focus').innerText(), 'Execute', 'the focus stays')
  t.strictSame(complaints, [])
})

t.test('the focus is visible on every control', async (t) => {
  for (const colorScheme of ['light', 'dark'] as const) {
    const { page } = await visitPage(t, { colorScheme })
    const stops = await page.evaluate<number>(
      `[...document.querySelectorAll('a, button, input:not([type=radio]), textarea, pre, fieldset, summary')]
        .filter((element) => element.checkVisibility()).length`,
    )
    for (let stop = 0; stop < stops; stop++) {
      await page.keyboard.press('Tab')
      const { name, outline, isInView } = await page.evaluate<{
        name: string
        outline: string
        isInView: boolean
      }>(`(() => {
        const { activeElement: element } = document
        const shown = element.type === 'radio' ? element.nextElementSibling : element
        const { outlineStyle, outlineWidth } = getComputedStyle(shown)
        const { top, bottom } = shown.getBoundingClientRect()
        return {
          name: element.outerHTML.slice(0, 100),
          outline: outlineStyle + ' ' + outlineWidth,
          isInView: bottom > 0 && top < innerHeight,
        }
      })()`)
      t.equal(outline, 'solid 3px', name)
      t.ok(isInView, name)
    }
  }
})

t.test('works under a path that a proxy puts before it', async (t) => {
  const { port } = await startService(t, entries)
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
  const proxyPort = await listen(t, proxy)
  // With a slash too many, which leads to the page.
  const { page, complaints } = await visit(t, browser, `http://127.0.0.1:${proxyPort}/store/docs/`)
  t.equal(new URL(page.url()).pathname, '/store/docs')
  await tryBoth(t, page)
  t.strictSame(complaints, [REFUSED])
})

t.test('explains that a key is missing, and leads to its field', async (t) => {
  const { page } = await visitPage(t)
  const list = operationOf(page, 'listInventory')
  const { outcome, body } = await execute(list)
  t.match(outcome, '401 Unauthorized')
  t.match(outcome, 'unauthorized: The API key is missing or invalid.')
  t.match(body, 'The API key is missing or invalid.')
  await list.locator('.answer').getByRole('link', { name: 'API key' }).click()
  t.equal(new URL(page.url()).hash, '#key')
  await page.locator('#key:focus').waitFor()
  t.equal(await page.getByRole('dialog').count(), 0)
  await enterKey(page, ` Bearer ${apiKey} `)
  t.match((await execute(list)).outcome, '200 OK', 'a key that is pasted with its scheme')
})

t.test('a large list is truncated, and the page says so', async (t) => {
  const { port, database } = await startService(t)
  await database.query(
    `INSERT INTO inventory (pet_id, quantity, status)
     SELECT ${PET} + n, 1, 'sold' FROM generate_series(0, 199999) n`,
  )
  const { page, complaints } = await visit(t, browser, `http://127.0.0.1:${port}/docs`)
  await enterKey(page)
  const list = operationOf(page, 'listInventory')
  const { outcome, body } = await execute(list)
  t.match(outcome, /200,000 entries · only the first 1,000 are shown, Download saves all of them$/)
  t.match(body, `"petId": ${PET},`)
  t.equal(body.match(/"petId"/g)?.length, 1000)
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    list.getByRole('button', { name: 'Download' }).click(),
  ])
  t.equal((await readFile(await download.path(), 'utf8')).match(/"petId"/g)?.length, 200_000)
  t.strictSame(complaints, [])
})
