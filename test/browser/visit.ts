import { mkdir } from 'node:fs/promises'
import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import type { Test } from 'tap'

const SCREENSHOTS = '.screenshots'

/** A page that is open in a browser, and what it did that nobody asked it to. */
export interface Visit {
  readonly page: Page
  /** Errors and warnings in the console, exceptions, and requests that left the page's origin, in order. */
  readonly complaints: readonly string[]
  /** Keeps a picture of what can be seen. */
  picture(name: string): Promise<void>
}

/** Opens an address in a window of its own. */
export async function visit(
  t: Test,
  browser: Browser,
  address: string,
  options: BrowserContextOptions = {},
): Promise<Visit> {
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
  return {
    page,
    complaints,
    picture: async (name) => {
      await mkdir(SCREENSHOTS, { recursive: true })
      await page.screenshot({ path: `${SCREENSHOTS}/${name}.png`, animations: 'disabled' })
    },
  }
}
