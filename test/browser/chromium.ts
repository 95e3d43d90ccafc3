import { pathOf } from '../faults/needs.ts'

const names = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable']

/** What to say where there is no browser. */
export const MISSING = `These tests need Chromium or Chrome: the package chromium of Debian, or set CHROME_PATH to one.
They looked for ${names.join(', ')} on PATH.`

/** The browser at `CHROME_PATH`, else the first one on PATH; undefined where there is none. */
export async function findChromium(): Promise<string | undefined> {
  if (process.env['CHROME_PATH']) return process.env['CHROME_PATH']
  const found = await Promise.all(names.map(pathOf))
  return found.find((file) => file !== undefined)
}
