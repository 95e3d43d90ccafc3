import { readdir } from 'node:fs/promises'
import t from 'tap'
import { startService } from '../support/app.ts'
import { createSender } from '../support/http.ts'

const send = createSender((await startService(t)).port)

const modules = (await readdir('reference')).filter((name) => name.endsWith('.js'))

t.test('the page and its files need no key, and load only each other', async (t) => {
  const page = await send('GET', '/docs')
  const pending = ['/docs']
  const loaded = new Map<string, unknown>()
  for (let path = pending.shift(); path !== undefined; path = pending.shift()) {
    const { status, headers, text } = await send('GET', path)
    t.equal(status, 200, path)
    t.match(headers, { 'x-content-type-options': 'nosniff', 'cache-control': 'no-cache' }, path)
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
    ...Object.fromEntries(modules.map((name) => [`/docs/${name}`, 'text/javascript; charset=utf-8'])),
  })
  t.notMatch(page.text, /(src|href)="(?!docs\/|openapi\.json|data:|#)/, 'nothing comes from elsewhere')
  t.notMatch(page.text, /<style|<script>| style=| on[a-z]+=/, 'nothing is inline')
  t.match(page.headers, {
    'content-security-policy':
      "default-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    'referrer-policy': 'no-referrer',
  })
})

t.test('a trailing slash redirects to the page, under any path', async (t) => {
  const { status, headers } = await send('GET', '/docs/')
  t.equal(status, 308)
  t.equal(new URL(headers.location ?? '', 'http://proxy/store/docs/').pathname, '/store/docs')
})
