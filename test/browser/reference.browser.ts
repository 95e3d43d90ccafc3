import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { createServer, request } from 'node:http'
import path from 'node:path'
import { promisify } from 'node:util'
import type { Locator } from 'playwright-core'
import t from 'tap'
import { pathOf } from '../faults/needs.ts'
import { apiKey, startService } from '../support/app.ts'
import { listen } from '../support/listen.ts'
import { enterKey, entries, execute, operationOf, PET, REFUSED, tryBoth, visit, visitPage } from './page.ts'

t.test(
  'says without any input where the service is, who creates keys and what is experimental',
  async (t) => {
    const { page, complaints, port } = await visitPage(t)
    t.ok(await page.getByText(`http://127.0.0.1:${port}/v1`, { exact: true }).isVisible())
    t.ok(await page.getByText('inventory keys create').isVisible())
    t.equal(await operationOf(page, 'listInventory').getByText('experimental', { exact: true }).count(), 0)
    t.ok(await operationOf(page, 'updateInventory').getByText('experimental', { exact: true }).isVisible())
    t.strictSame(complaints, [])

    const publicUrls = ['https://api.example.com/v1', 'https://staging.example.com/v1']
    const other = await startService(t, [], { env: { PUBLIC_URLS: publicUrls.join() } })
    const { page: listing } = await visit(t, `http://127.0.0.1:${other.port}/docs`)
    for (const url of publicUrls) t.ok(await listing.getByText(url, { exact: true }).isVisible())
  },
)

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

t.test('operations, responses and schemas have links', async (t) => {
  const docs = `http://127.0.0.1:${(await startService(t)).port}/docs`
  for (const id of ['updateInventory', 'updateInventory-412', 'schema-Error']) {
    const { page } = await visit(t, `${docs}#${id}`)
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

t.test('works under a path that a proxy puts before it', async (t) => {
  const { port } = await startService(t, entries)
  const proxy = createServer((incoming, outgoing) => {
    const { method, headers, url = '' } = incoming
    const target = { host: '127.0.0.1', port, method, headers, path: /^\/store(.*)/.exec(url)?.[1] ?? '/' }
    incoming.pipe(
      request(target, (answer) => {
        outgoing.writeHead(answer.statusCode ?? 502, answer.headers)
        answer.pipe(outgoing)
      }),
    )
  })
  const proxyPort = await listen(t, proxy)
  // With a slash too many, which leads to the page.
  const { page, complaints } = await visit(t, `http://127.0.0.1:${proxyPort}/store/docs/`)
  t.equal(new URL(page.url()).pathname, '/store/docs')
  await tryBoth(t, page)
  t.strictSame(complaints, REFUSED)
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
  const { page, complaints } = await visit(t, `http://127.0.0.1:${port}/docs`)
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
