import type { Locator } from 'playwright-core'
import t from 'tap'
import { apiKey } from '../support/app.ts'
import { enterKey, execute, field, open, PET, REFUSED, tryBoth } from './page.ts'

/** The name of the element that has the focus, its outline, and whether it is in view. */
const FOCUSED = `(() => {
  const { activeElement: element } = document
  const { outlineStyle, outlineWidth } = getComputedStyle(element)
  const { top, bottom } = element.getBoundingClientRect()
  return {
    name: element.outerHTML.slice(0, 100),
    outline: outlineStyle + ' ' + outlineWidth,
    isInView: bottom > 0 && top < innerHeight,
  }
})()`

t.test('the page works by the keyboard alone, and shows where the focus is', async (t) => {
  const { page, update, complaints } = await open(t)
  /** Presses Tab until the element has the focus. */
  const tabTo = async (element: Locator): Promise<void> => {
    do {
      await page.keyboard.press('Tab')
      const { name, ...shown } = await page.evaluate<{ name: string }>(FOCUSED)
      t.strictSame(shown, { outline: 'solid 3px', isInView: true }, name)
    } while ((await element.and(page.locator(':focus')).count()) === 0)
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

t.test('the page works under a path that a proxy puts before it', async (t) => {
  const visit = await open(t, {}, { prefix: '/store' })
  await tryBoth(t, visit)
  t.strictSame(visit.complaints, [REFUSED])
})

t.test('a large list is truncated, and the page says so', async (t) => {
  const { page, list, database, complaints } = await open(t)
  await database.query(`INSERT INTO inventory SELECT ${PET} + n, 1, 'sold' FROM generate_series(1, 199998) n`)
  await enterKey(page)
  const { outcome, body } = await execute(list)
  t.equal(outcome, '200 OK 200,000 entries, showing the first 1,000')
  t.equal(body.match(/"petId"/g)?.length, 1000)
  t.match(body, /\n {2}\},\n {2}…\n\]$/)
  t.strictSame(complaints, [])
})
