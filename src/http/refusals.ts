import type { FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { ApiError } from '../contract/api-error.ts'
import { challenge } from './authentication.ts'

const NO_ROUTE =
  'There is nothing at this path. The inventory is at /v1/inventory, and the documentation of the API at /docs.'

/**
 * Decides what a caller may not do, in this order: 404 for an unknown path, 405 for another method, 403 for a read-only key. It does so
 * after the hooks that check the key (401), and before Fastify reads the body (413, 415) and validates the request (400).
 */
export const refusals = fp(
  async (app) => {
    app.addHook('preParsing', (request, _reply, _payload, done) => {
      refuse(request)
      done()
    })
  },
  { name: 'refusals', dependencies: ['errors'] },
)

/**
 * Throws what the caller may not do. It is also the not-found handler of a scope: without one, unknown paths would skip the hooks of the
 * scope, such as the one that checks the key.
 */
export function refuse({ server, is404, params, method, raw, apiKey }: FastifyRequest): void {
  if (is404 || hasEmptyParameter(params)) {
    const allowed = server.supportedMethods.filter((other) => {
      const route = server.findRoute({ method: other, url: raw.url ?? '' })
      return route !== null && !hasEmptyParameter(route.params)
    })
    if (allowed.length === 0) throw new ApiError(404, NO_ROUTE)
    const allow = allowed.join(', ')
    throw new ApiError(405, `${method} is not allowed at this path. Allowed: ${allow}.`, {
      headers: { allow },
    })
  }
  if (apiKey?.isReadOnly && method !== 'GET' && method !== 'HEAD')
    throw challenge(403, 'This API key is read-only. Use a key with write access.', 'insufficient_scope')
}

/** Whether a path ends with nothing for a parameter: the router matches `/inventory/` with `/inventory/:petId`. */
function hasEmptyParameter(params: unknown): boolean {
  return Object.values(Object(params)).includes('')
}
