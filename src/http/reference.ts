import { readFileSync } from 'node:fs'
import type { FastifyInstance } from 'fastify'

const headers = {
  // After an upgrade, caches would otherwise serve the previous version.
  'cache-control': 'no-cache',
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  // The page loads from its own origin only, runs no inline scripts, and cannot be framed.
  'content-security-policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    // For the page's empty icon, without which browsers request /favicon.ico.
    'img-src data:',
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
}

const JAVASCRIPT = 'text/javascript; charset=utf-8'

/** The files of the reference page. */
const files = [
  { url: '/docs', type: 'text/html; charset=utf-8', name: 'index.html' },
  { url: '/docs/reference.css', type: 'text/css; charset=utf-8', name: 'reference.css' },
  { url: '/docs/reference.js', type: JAVASCRIPT, name: 'reference.js' },
  { url: '/docs/json-text.js', type: JAVASCRIPT, name: 'json-text.js' },
  { url: '/docs/samples.js', type: JAVASCRIPT, name: 'samples.js' },
]

/**
 * Serves the OpenAPI document at `/openapi.json`, and the API reference page at `/docs` with its files below that path. Register
 * it outside the scope that requires an API key. All links are relative, so that the page works behind a proxy that adds a path
 * prefix.
 */
export function serveReference(app: FastifyInstance): void {
  const options = { schema: { hide: true } }
  // One buffer, so that responses that are not read share it.
  let document: Buffer | undefined
  app.get('/openapi.json', options, (_request, reply) => {
    document ??= Buffer.from(JSON.stringify(app.swagger()))
    return reply.headers(headers).type('application/json; charset=utf-8').send(document)
  })
  for (const { url, type, name } of files) {
    // The same place, seen from `src` and from `dist`.
    const content = readFileSync(new URL(`../../reference/${name}`, import.meta.url))
    app.get(url, options, (_request, reply) => reply.headers(headers).type(type).send(content))
  }
  // Relative for the same reason. From here, the page's links would lead elsewhere.
  app.get('/docs/', options, (_request, reply) => reply.redirect('../docs', 308))
}
