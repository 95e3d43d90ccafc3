import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'
import { promisify } from 'node:util'
import { devices, type Locator, type Page } from 'playwright-core'
import t from 'tap'
import { apiKey } from '../support/app.ts'
import { enterKey, execute, field, open, PET, press, REFUSED, tryBoth } from './page.ts'

/** Returns what axe finds against WCAG 2.2, levels A and AA, and against its best practices, a line each. */
async function violationsOf(page: Page): Promise<string[]> {
  await page.evaluate(await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8'))
  return page.evaluate<string[]>(`
    axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }).then(
      ({ violations }) => violations.flatMap(({ id, nodes }) => nodes.map(({ target }) => id + ': ' + target)))`)
}

for (const [name, options] of [
  ['a light desktop', {}],
  // 320 pixels wide.
  ['a dark phone', { ...devices['iPhone SE'], colorScheme: 'dark' }],
] as const) {
  t.test(`a person with a key can try both operations: ${name}`, async (t) => {
    const visit = await open(t, options)
    const { page } = visit
    t.strictSame(await violationsOf(page), [], 'axe finds nothing at first')
    await tryBoth(t, visit)
    await page.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")
    t.strictSame(await violationsOf(page), [], 'nor with two responses, and all documented ones open')
    const width = await page.evaluate<number>('document.documentElement.scrollWidth')
    t.equal(width, page.viewportSize()?.width, 'it does not scroll sideways')
    t.strictSame(visit.complaints, [REFUSED])
  })
}

t.test('it says where the service is, who creates keys and what is experimental', async (t) => {
  const publicUrls = ['https://api.example.com/v1', 'https://staging.example.com/v1']
  const { page, update } = await open(t, {}, { publicUrls })
  for (const text of publicUrls) t.ok(await page.getByText(text, { exact: true }).isVisible())
  t.ok(await page.getByText('inventory keys create').isVisible())
  t.ok(await update.getByText('experimental', { exact: true }).isVisible())
  const { page: local, list, port } = await open(t)
  t.ok(await local.getByText(`http://127.0.0.1:${port}/v1`, { exact: true }).isVisible())
  t.equal(await list.getByText('experimental', { exact: true }).count(), 0)
})

t.test('every documented error is shown with its body and code', async (t) => {
  const { page } = await open(t)
  const errors = page.locator('details:has([id*="Inventory-4"], [id*="Inventory-5"])')
  t.ok((await errors.count()) > 15)
  for (const error of await errors.all()) {
    t.notOk(await error.locator('pre').isVisible())
    await error.locator('summary').click()
    const { code, ...rest } = JSON.parse(await error.locator('pre').innerText())
    t.match(code, /^[a-z_]+$/)
    t.strictSame(Object.keys(rest), ['message', 'status'])
  }
})

t.test('a field that is refused replaces the response, and gets the focus', async (t) => {
  const { page, update, complaints } = await open(t)
  await enterKey(page)
  await field(update, 'petId').fill(PET)
  for (const [name, wrong, problem] of [
    ['petId', '', 'petId is required.'],
    ['petId', '9223372036854775808', /must be an integer from -9223372036854775808 to 9223372036854775807/],
    ['If-Match', '"…"', 'If-Match has a character that is not allowed in a header.'],
    ['API key', 'ключ', 'The API key has a character that is not allowed in a header.'],
  ] as const) {
    await execute(update)
    const input = name === 'API key' ? page.locator('#key') : field(update, name)
    const right = await input.inputValue()
    await input.fill(wrong)
    await press(update)
    await update.getByText(problem).waitFor()
    t.equal(await update.getByRole('group', { name: 'Response body' }).count(), 0)
    t.equal(await input.and(page.locator(':focus')).count(), 1)
    await input.fill(right)
  }
  t.strictSame(complaints, [])
})

t.test('a missing key, a condition that fails, and a missing response are explained', async (t) => {
  const { page, list, update } = await open(t)
  const { outcome } = await execute(list)
  t.match(outcome, /401 Unauthorized.*unauthorized: The API key is missing or invalid\./s)
  await list.locator('.answer').getByRole('link', { name: 'API key' }).click()
  await page.locator('#key:focus').waitFor()
  await enterKey(page, ` Bearer ${apiKey} `)
  t.match((await execute(list)).outcome, '200 OK', 'a key that is pasted with its scheme')

  await field(update, 'petId').fill(PET)
  for (const [tag, status] of Object.entries({ '"8-pending"': '412', '"7-pending"': '200' })) {
    await field(update, 'If-Match').fill(tag)
    t.match((await execute(update)).outcome, status)
  }
  await page.route(/\/v1\//, (route) => route.abort())
  await press(list)
  await list.getByText('No response: the service cannot be reached').waitFor()
})

t.test('operations, responses and schemas have links', async (t) => {
  const { page } = await open(t)
  for (const id of ['updateInventory', 'updateInventory-412', 'schema-Error']) {
    await page.goto(`${page.url().replace(/#.*/, '')}#${id}`)
    await page.reload()
    await page.locator(`[id="${id}"]:focus`).waitFor()
    const link = page.locator(`:is(h2, h3) > a[href="#${id}"], summary[id="${id}"]`)
    const { y = -1 } = (await link.boundingBox()) ?? {}
    t.ok(y >= 0 && y < (page.viewportSize()?.height ?? 0), `the link to ${id} is in view`)
  }
  await page.locator('[id="updateInventory-404"]').click()
  t.equal(new URL(page.url()).hash, '#updateInventory-404', 'the address leads to the opened response')
})

t.test('the navigation marks the section that is being read', async (t) => {
  const { page } = await open(t)
  const current = page.locator('#contents [aria-current]')
  t.equal(await current.innerText(), 'Introduction')
  for (const name of ['Update stock level', 'API key']) {
    await page.getByRole('navigation').getByRole('link', { name }).click()
    await current.getByText(name).waitFor()
  }
})

t.test('Enter in the field of the key checks it; without JavaScript there is none', async (t) => {
  const { page, port } = await open(t)
  for (const [key, outcome] of [
    ['wrong', 'The service does not accept this key.'],
    ['ключ', 'The API key has a character that is not allowed in a header.'],
    [apiKey, 'The service accepts this key.'],
  ] as const) {
    await enterKey(page, key)
    await page.keyboard.press('Enter')
    await page.locator('#key-status').getByText(outcome).waitFor()
  }
  const context = await page.context().browser()?.newContext({ javaScriptEnabled: false })
  t.teardown(() => context?.close())
  const plain = await context?.newPage()
  await plain?.goto(`http://127.0.0.1:${port}/docs`)
  t.ok(await plain?.locator('noscript p').isVisible())
  t.notOk(await plain?.locator('input, button').first().isVisible())
})

t.test('each request has runnable samples in four languages', async (t) => {
  const { list, update, complaints } = await open(t)
  await field(update, 'Request body').fill(`{"quantity": 3,\n "note": "it's \\"so\\""}`)
  const goFile = path.join(t.testdir(), 'main.go')
  for (const [language, program, ...options] of [
    ['curl', 'bash', '-c'],
    ['JavaScript', 'node', '--input-type=module', '--eval'],
    ['Python', 'python3', '-c'],
    ['Go', 'go', 'run', goFile],
  ] as const) {
    await update.getByRole('radio', { name: language }).click()
    /** Runs the sample of an operation with a value in a field, and returns what it prints. */
    const run = async (operation: Locator, name: string, value: string): Promise<string> => {
      await field(operation, name).fill(value)
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
    t.match(await run(list, 'If-None-Match', ''), PET, language)
    t.match(await run(update, 'petId', PET), new RegExp(`${PET}[^]*\\b3\\b`), language)
    const unchanged = await run(list, 'If-None-Match', '*')
    if (language !== 'curl') t.equal(unchanged, 'The list has not changed.\n', language)
    t.match(await run(update, 'petId', '6'), /not_found.*No inventory entry exists for petId 6/, language)
  }
  t.strictSame(complaints, [])
})
