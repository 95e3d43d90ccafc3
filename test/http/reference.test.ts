import { gunzipSync } from 'node:zlib'
import t from 'tap'
import { startService } from '../support/app.ts'
import { callerOf } from '../support/http.ts'

const send = callerOf((await startService(t)).port)

/** The addresses of what a page loads, as they are written in it. */
function loadedBy(html: string): string[] {
  return [...html.matchAll(/<(?:script|link)[^>]* (?:src|href)="([^"]+)"/g)].map(
    ([, address]) => address ?? '',
  )
}

/** The addresses of what a script of the page imports, as a page would write them. */
function importedBy(script: string): string[] {
  return [...script.matchAll(/^import .* from '\.\/([^']+)'$/gm)].map(([, name]) => `docs/${name}`)
}

t.test('the page and its files need no key', async (t) => {
  const page = await send('GET', '/docs')
  t.equal(page.status, 200)
  t.equal(page.headers['content-type'], 'text/html; charset=utf-8')
  const loaded = loadedBy(page.text).filter((address) => !address.startsWith('data:'))
  t.strictSame(loaded.toSorted(), ['docs/reference.css', 'docs/reference.js'])
  // The script imports the others, relative to itself.
  const scripts = await Promise.all(loaded.map((address) => send('GET', `/${address}`)))
  loaded.push(...scripts.flatMap(({ text }) => importedBy(text)))
  t.equal(loaded.length, 4)
  for (const address of loaded) {
    t.match(address, /^docs\//, 'it is relative, so that a proxy may put a path before it')
    const answer = await send('GET', `/${address}`)
    t.equal(answer.status, 200, address)
    t.equal(
      answer.headers['content-type'],
      address.endsWith('.css') ? 'text/css; charset=utf-8' : 'text/javascript; charset=utf-8',
    )
    t.equal(answer.headers['x-content-type-options'], 'nosniff')
    if (address.endsWith('.css'))
      t.notMatch(answer.text, /@import|url\(["']?(?!["']?data:)/, 'it loads nothing')
  }
  t.notMatch(page.text, /(src|href)="(https?:)?\/\//, 'nothing comes from elsewhere')
})

t.test('the policy of the page allows only its own scripts and styles', async (t) => {
  const page = await send('GET', '/docs')
  const policy = String(page.headers['content-security-policy']).split('; ')
  for (const directive of [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ]) {
    t.ok(policy.includes(directive), directive)
  }
  t.notMatch(policy.join(), /unsafe|https?:|\*/)
  t.equal(page.headers['referrer-policy'], 'no-referrer')
  t.notMatch(page.text, /<style|<script>| style=| on[a-z]+=/, 'nothing is inline')
})

t.test('the page is compressed if the caller accepts it, and is not sent again if unchanged', async (t) => {
  for (const path of ['/docs', '/docs/reference.js', '/openapi.json']) {
    const plain = await send('GET', path)
    t.equal(plain.headers['content-encoding'], undefined)
    const gzip = { 'accept-encoding': 'br, gzip' }
    const compressed = await send('GET', path, { headers: gzip })
    t.equal(compressed.headers['content-encoding'], 'gzip')
    const preferred = { 'accept-encoding': 'gzip;q=0.5, identity' }
    t.equal((await send('GET', path, { headers: preferred })).headers['content-encoding'], undefined)
    t.strictSame(gunzipSync(compressed.body), plain.body)
    t.not(compressed.headers.etag, plain.headers.etag)
    for (const [{ headers }, accepted] of [
      [plain, {}],
      [compressed, gzip],
    ] as const) {
      t.equal(headers['cache-control'], 'no-cache')
      t.equal(headers.vary, 'Accept-Encoding')
      for (const method of ['GET', 'HEAD']) {
        const again = await send(method, path, { headers: { ...accepted, 'if-none-match': headers.etag } })
        t.equal(again.status, 304)
        t.equal(again.body.length, 0)
        t.equal(again.headers.etag, headers.etag)
        t.equal(again.headers['content-length'], undefined, 'it would be the size of the page')
      }
    }
  }
})

t.test('a trailing slash redirects to the page, under any path', async (t) => {
  const { status, headers } = await send('GET', '/docs/')
  t.equal(status, 308)
  t.equal(new URL(headers.location ?? '', 'http://proxy/store/docs/').pathname, '/store/docs')
})
