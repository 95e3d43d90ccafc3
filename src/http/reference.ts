import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { FastifyInstance } from 'fastify'
import { preferredCoding } from '../content-coding.ts'
import { matches } from '../entity-tag.ts'

/** The page asks nobody but its own origin for anything, runs no script but its files, and is shown in no frame. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  // Swagger UI's style sheet has its icons in it.
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

const HTML = 'text/html; charset=utf-8'
const JAVASCRIPT = 'text/javascript; charset=utf-8'
const CSS = 'text/css; charset=utf-8'

const { resolve } = createRequire(import.meta.url)

/** A file of the page's own; the same place seen from `src` and from `dist`. */
function own(name: string): string {
  return fileURLToPath(new URL(`../../reference/${name}`, import.meta.url))
}

/**
 * The files by their paths. Swagger UI's come from the package @fastify/swagger-ui, because swagger-ui-dist has a script
 * that reports who installs it. The plugin in that package is not used: it has no place for the page's own script,
 * compresses nothing, and answers a wrong path or method in a shape of its own.
 */
const files = [
  { url: '/docs', type: HTML, file: own('index.html') },
  { url: '/docs/reference.js', type: JAVASCRIPT, file: own('reference.js') },
  { url: '/docs/reference.css', type: CSS, file: own('reference.css') },
  { url: '/docs/lossless-json.js', type: JAVASCRIPT, file: resolve('lossless-json') },
  {
    url: '/docs/swagger-ui-bundle.js',
    type: JAVASCRIPT,
    file: resolve('@fastify/swagger-ui/static/swagger-ui-bundle.js'),
  },
  { url: '/docs/swagger-ui.css', type: CSS, file: resolve('@fastify/swagger-ui/static/swagger-ui.css') },
]

const compress = promisify(gzip)

/**
 * Serves the reference page at `/docs`, and what it is made of below; to be registered outside the scope that needs a
 * key. All links in it are relative, so that it works under any path that a proxy puts before it.
 */
export function serveReference(app: FastifyInstance): void {
  for (const file of files) serveFile(app, file)
  // Relative for the same reason. The page's own links would lead elsewhere from here.
  app.get('/docs/', { schema: { hide: true } }, (_request, reply) => reply.redirect('../docs', 308))
}

/** Serves a file that does not change while the process runs, compressed where the caller accepts that. */
function serveFile(app: FastifyInstance, { url, type, file }: (typeof files)[number]): void {
  const content = readFileSync(file)
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
