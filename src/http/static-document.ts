import { createHash } from 'node:crypto'
import { gzipSync } from 'node:zlib'
import type { FastifyInstance } from 'fastify'
import { preferredCoding } from '../contract/content-coding.ts'
import { entityTags, includesTag } from '../contract/entity-tag.ts'

/** A small document that is the same for every caller. */
export interface StaticDocument {
  readonly url: string
  /** Its media type. */
  readonly type: string
  /** Response headers in addition to those of every document. */
  readonly headers?: Readonly<Record<string, string>>
  /** Returns the content. Called once, for the first request. */
  readonly content: () => string | Buffer
}

/**
 * Serves the document from memory: all responses share one buffer for each content coding. Register it outside the scope that
 * requires an API key.
 */
export function serveDocument(app: FastifyInstance, { url, type, headers, content }: StaticDocument): void {
  let forms: ReturnType<typeof formsOf> | undefined
  app.get(url, { schema: { hide: true } }, (request, reply) => {
    forms ??= formsOf(Buffer.from(content()))
    const coding = preferredCoding(request.headers, ['gzip'])
    const { body, etag } = forms[coding]
    reply.headers({
      // Caches revalidate the document before every use: after an upgrade, they would otherwise serve the previous version.
      'cache-control': 'no-cache',
      vary: 'Accept-Encoding',
      'x-content-type-options': 'nosniff',
      ...headers,
      etag,
    })
    if (includesTag(entityTags(request.headers, 'If-None-Match'), etag)) return reply.code(304).send()
    if (coding === 'gzip') reply.header('content-encoding', coding)
    return reply.type(type).send(body)
  })
}

function formsOf(content: Buffer) {
  const digest = createHash('sha256').update(content).digest('base64url').slice(0, 22)
  return {
    identity: { body: content, etag: `"${digest}"` },
    gzip: { body: gzipSync(content), etag: `"${digest}-gzip"` },
  }
}
