import { gunzipSync } from 'node:zlib'
import t from 'tap'
import { startService } from '../support/app.ts'
import { callerOf } from '../support/http.ts'

const send = callerOf((await startService(t)).port)

t.test('the page and its files need no key, and load only each other', async (t) => {
  const page = await send('GET', '/docs')
  const pending = ['/docs']
  const loaded = new Map<string, unknown>()
  for (let path = pending.shift(); path !== undefined; path = pending.shift()) {
    const { status, headers, text } = await send('GET', path)
    t.equal(status, 200, path)
    t.equal(headers['x-content-type-options'], 'nosniff')
    loaded.set(path, headers['content-type'])
    // Relative addresses, so that a proxy may put a path before them.
    const tags = text.matchAll(/<(?:script|link)[^>]* (?:src|href)="(docs\/[^"]+)"/g)
    const imports = text.matchAll(/^import .* from '\.\/([^']+)'$/gm)
    pending.push(...Array.from(tags, ([, address]) => `/${address}`))
    pending.push(...Array.from(imports, ([, name]) => `/docs/${name}`))
    if (path.endsWith('.css')) t.notMatch(text, /@import|url\(["']?(?!["']?data:)/, 'styles load nothing')
  }
  t.strictSame(Object.fromEntries(loaded), {
    '/docs': 'text/html; charset=utf-8',
    '/docs/reference.css': 'text/css; charset=utf-8',
    '/docs/reference.js': 'text/javascript; charset=utf-8',
    '/docs/json-text.js': 'text/javascript; charset=utf-8',
    '/docs/samples.js': 'text/javascript; charset=utf-8',
  })
  t.notMatch(page.text, /(src|href)="(?!docs\/|openapi\.json|data:|#)/, 'nothing comes from elsewhere')
  t.notMatch(page.text, /<style|<script>| style=| on[a-z]+=/, 'nothing is inline')
  t.match(page.headers, {
    'content-security-policy':
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; " +
      "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    'referrer-policy': 'no-referrer',
  })
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
