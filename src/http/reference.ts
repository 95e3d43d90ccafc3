import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { FastifyInstance } from 'fastify'
import { preferredCoding } from '../contract/content-coding.ts'
import { matches } from '../contract/entity-tag.ts'

/** The page asks nobody but its own origin for anything, runs no script but its files, and is shown in no frame. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  // The page's icon is empty: without one, browsers ask for /favicon.ico.
  'img-src data:',
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

const HTML = 'text/html; charset=utf-8'
const JAVASCRIPT = 'text/javascript; charset=utf-8'
const CSS = 'text/css; charset=utf-8'

/** The files of the page by their paths. */
const files = [
  { url: '/docs', type: HTML, name: 'index.html' },
  { url: '/docs/reference.css', type: CSS, name: 'reference.css' },
  { url: '/docs/reference.js', type: JAVASCRIPT, name: 'reference.js' },
  { url: '/docs/json-text.js', type: JAVASCRIPT, name: 'json-text.js' },
  { url: '/docs/samples.js', type: JAVASCRIPT, name: 'samples.js' },
]

const compress = promisify(gzip)

/**
 * Serves the reference page at `/docs`, and the files that it loads below; to be registered outside the scope that needs a
 * key. All links in it are relative, so that it works under any path that a proxy puts before it.
 */
export function serveReference(app: FastifyInstance): void {
  for (const file of files) serveFile(app, file)
  // Relative for the same reason. The page's own links would lead elsewhere from here.
  app.get('/docs/', { schema: { hide: true } }, (_request, reply) => reply.redirect('../docs', 308))
}

/** Serves a file that does not change while the process runs, compressed where the caller accepts that. */
function serveFile(app: FastifyInstance, { url, type, name }: (typeof files)[number]): void {
  // The same place, seen from `src` and from `dist`.
  const content = readFileSync(new URL(`../../reference/${name}`, import.meta.url))
  const digest = createHash('sha256').update(content).digest('base64url').slice(0, 22)
  const headers = {
    // Kept by browsers, and never used without asking whether it is still right.
    'cache-control': 'no-cache',
    vary: 'Accept-Encoding',
    'x-content-type-options': 'nosniff',
    ...(type === HTML
      ? { 'content-security-policy': CONTENT_SECURITY_POLICY, 'referrer-policy': 'no-referrer' }
      : {}),
  }
  let compressed: Promise<Buffer> | undefined
  app.get(url, { schema: { hide: true } }, async (request, reply) => {
    const isCompressed = preferredCoding(request.headers, ['gzip']) === 'gzip'
    const etag = isCompressed ? `"${digest}-gzip"` : `"${digest}"`
    reply.headers(headers).header('etag', etag)
    if (matches(request.headers['if-none-match'], etag)) return reply.code(304).send()
    if (isCompressed) reply.header('content-encoding', 'gzip')
    compressed ??= isCompressed ? compress(content) : undefined
    return reply.type(type).send(isCompressed ? await compressed : content)
  })
}
