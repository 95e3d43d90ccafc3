import type { FastifyInstance, FastifyRequest } from 'fastify'
import { ApiError } from '../contract/errors.ts'

/**
 * Answers the CORS preflights of browsers with a 403 that says why. A preflight never carries a key, so a 401 would mislead.
 * Call it before `requireApiKey`.
 */
export function refusePreflights(scope: FastifyInstance): void {
  scope.addHook('onRequest', (request, _reply, done) => {
    done(isPreflight(request) ? corsUnsupported() : undefined)
  })
}

/** Whether a browser asks for permission to send a request from a page of another origin (Fetch, section 3.3.2). */
function isPreflight({ method, headers }: FastifyRequest): boolean {
  return (
    method === 'OPTIONS' &&
    headers.origin !== undefined &&
    headers['access-control-request-method'] !== undefined
  )
}

function corsUnsupported(): ApiError {
  return new ApiError(
    403,
    'This service does not support CORS. Call it from your backend, or through a proxy of the same origin as the page.',
  )
}
