import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import fp from 'fastify-plugin'

const headers = {
  // After an upgrade, caches would otherwise serve the previous version.
  'cache-control': 'no-cache',
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  // The page loads from its own origin only, runs no inline scripts, and cannot be framed. Without its empty icon in a `data:` address,
  // browsers request /favicon.ico.
  'content-security-policy':
    "default-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}

const folder = fileURLToPath(import.meta.resolve('#package/reference'))

/** The types of text that are served, by extension. */
const types = new Map(Object.entries({ '.html': 'html', '.css': 'css', '.js': 'javascript' }))

/**
 * Serves the OpenAPI document at `/openapi.json`, and the API reference page at `/docs`, outside the scope that requires an API key.
 * All links are relative: a proxy may add a path prefix.
 */
export const reference = fp(
  async (app) => {
    const options = { schema: { hide: true } }
    // One buffer, so that responses that are not read share it.
    let document: Buffer | undefined
    app.get('/openapi.json', options, (_request, reply) => {
      document ??= Buffer.from(JSON.stringify(app.swagger()))
      return reply.headers(headers).type('application/json; charset=utf-8').send(document)
    })
    for (const name of readdirSync(folder)) {
      const type = types.get(path.extname(name))
      if (type === undefined) continue
      const content = readFileSync(path.join(folder, name))
      const url = name === 'index.html' ? '/docs' : `/docs/${name}`
      const textType = `text/${type}; charset=utf-8`
      app.get(url, options, (_request, reply) => reply.headers(headers).type(textType).send(content))
    }
    // Relative for the same reason. From here, the page's links would lead elsewhere.
    app.get('/docs/', options, (_request, reply) => reply.redirect('../docs', 308))
  },
  { name: 'reference', dependencies: ['openapi'] },
)
