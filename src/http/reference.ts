import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { FastifyInstance } from 'fastify'
import { preferredCoding } from '../contract/content-coding.ts'
import { matches } from '../contract/entity-tag.ts'

/** The page loads from its own origin only, runs no inline scripts, and cannot be framed. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  // For the page's empty icon, without which browsers request /favicon.ico.
  'img-src data:',
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

const HTML = 'text/html; charset=utf-8'
const JAVASCRIPT = 'text/javascript; charset=utf-8'
const CSS = 'text/css; charset=utf-8'

/** The files of the reference page. */
const files = [
  { url: '/docs', type: HTML, name: 'index.html' },
  { url: '/docs/reference.css', type: CSS, name: 'reference.css' },
  { url: '/docs/reference.js', type: JAVASCRIPT, name: 'reference.js' },
  { url: '/docs/json-text.js', type: JAVASCRIPT, name: 'json-text.js' },
  { url: '/docs/samples.js', type: JAVASCRIPT, name: 'samples.js' },
]

const compress = promisify(gzip)

/**
 * Serves the API reference page at `/docs`, and its files below that path. Register it outside the scope that requires an
 * API key. All links are relative, so that the page works behind a proxy that adds a path prefix.
 */
export function serveReferencePage(app: FastifyInstance): void {
  for (const file of files) serveFile(app, file)
  // Relative for the same reason. From here, the page's links would lead elsewhere.
  app.get('/docs/', { schema: { hide: true } }, (_request, reply) => reply.redirect('../docs', 308))
}

/** Serves a file from memory, with gzip if the client accepts it. */
function serveFile(app: FastifyInstance, { url, type, name }: (typeof files)[number]): void {
  // The same place, seen from `src` and from `dist`.
  const content = readFileSync(new URL(`../../reference/${name}`, import.meta.url))
  const digest = createHash('sha256').update(content).digest('base64url').slice(0, 22)
  const headers = {
    // Browsers cache the file and revalidate it before every use.
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
