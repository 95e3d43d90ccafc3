import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import type { BrowserContextOptions, Locator, Page } from 'playwright-core'
import t from 'tap'
import { apiKey } from '../support/app.ts'
import { operationOf, PET, REFUSED, tryBoth, visitPage } from './page.ts'

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

const touch = { isMobile: true, hasTouch: true }
const screens: Readonly<Record<string, BrowserContextOptions>> = {
  desktop: {},
  'a small phone': { ...touch, viewport: { width: 320, height: 740 } },
  'a common phone': { ...touch, viewport: { width: 390, height: 740 } },
}

for (const [name, options] of Object.entries(screens)) {
  for (const colorScheme of ['light', 'dark'] as const) {
    t.test(`lets a person with a key try both operations: ${name}, ${colorScheme}`, async (t) => {
      const { page, complaints } = await visitPage(t, { ...options, colorScheme })
      t.strictSame(await violationsOf(page), [], 'axe finds nothing at first')
      await tryBoth(t, page)
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
      t.strictSame(complaints, REFUSED)
    })
  }
}

t.test('marks the selected language where the system replaces all colors', async (t) => {
  const { page } = await visitPage(t, { forcedColors: 'active' })
  const [selected, ...others] = await page.evaluate<string[]>(`
    [...document.querySelectorAll('#listInventory .languages span')]
      .map((language) => /\\d+, \\d+, \\d+/.exec(getComputedStyle(language).backgroundColor)[0])`)
  t.equal(others.length, 3)
  t.notOk(others.includes(selected ?? ''), `${selected} is not ${others}`)
})

t.test('works by the keyboard alone, with the focus in view', async (t) => {
  for (const colorScheme of ['light', 'dark'] as const) {
    const { page, complaints } = await visitPage(t, { colorScheme })
    /** Presses Tab until the element has the focus. */
    const tabTo = async (element: Locator): Promise<void> => {
      do {
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
      } while ((await element.and(page.locator(':focus')).count()) === 0)
    }
    await tabTo(page.getByRole('textbox', { name: 'API key' }))
    await page.keyboard.type(apiKey)
    const update = operationOf(page, 'updateInventory')
    await tabTo(update.getByRole('textbox', { name: 'petId' }))
    await page.keyboard.type(PET)
    await tabTo(update.getByRole('textbox', { name: 'Request body' }))
    await page.keyboard.press('ControlOrMeta+a')
    await page.keyboard.type('{"quantity": 5}')
    await tabTo(update.getByRole('button', { name: 'Execute' }))
    await page.keyboard.press('Enter')
    await update.getByRole('group', { name: 'Response body' }).getByText('"quantity": 5').waitFor()
    t.equal(await update.locator('button:focus').innerText(), 'Execute', 'the focus stays')
    await tabTo(page.locator('summary').last())
    t.strictSame(complaints, [])
  }
})
