import { METHODS } from 'node:http'
import type { FastifyInstance } from 'fastify'
import { ApiError } from '../contract/api-error.ts'

/**
 * Returns a function to call after the routes of `scope` are registered. It adds routes that answer the other methods of the same paths
 * with 405 and `Allow` (RFC 9110, section 15.5.6), with the same authentication.
 */
export function refuseOtherMethods(scope: FastifyInstance): () => void {
  // By default, Fastify has no route for those of WebDAV and others, and would answer 404.
  for (const method of METHODS) if (!scope.supportedMethods.includes(method)) scope.addHttpMethod(method)
  const methodsOf = new Map<string, string[]>()
  scope.addHook('onRoute', ({ routePath, method }) => {
    methodsOf.set(routePath, [...(methodsOf.get(routePath) ?? []), method].flat())
  })
  return () => {
    // A copy, because the hook also records the routes that are added here.
    for (const [url, methods] of [...methodsOf]) {
      const allow = methods.toSorted().join(', ')
      scope.route({
        url,
        method: scope.supportedMethods.filter((method) => !methods.includes(method)),
        schema: { hide: true },
        preParsing: (request, _reply, _payload, done) => {
          const message = `${request.method} is not allowed at this path. Allowed: ${allow}.`
          done(new ApiError(405, message, { headers: { allow } }))
        },
        handler: () => {},
      })
    }
  }
}
