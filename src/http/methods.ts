import { METHODS } from 'node:http'
import type { FastifyInstance } from 'fastify'
import { ApiError } from '../contract/errors.ts'

/** CONNECT has no path; Node hands it to nobody's route. */
const routableMethods = METHODS.filter((method) => method !== 'CONNECT')

/**
 * Makes the router know every method that Node's parser lets through, QUERY and TRACE too, so that each can be
 * answered. To be called once, on the root instance.
 */
export function knowEveryMethod(app: FastifyInstance): void {
  for (const method of routableMethods) {
    if (!app.supportedMethods.includes(method)) app.addHttpMethod(method)
  }
}

/**
 * Returns a function that is to be called once the routes of `scope` are registered: it answers the methods that a
 * known path has no route for with 405 and `Allow` (RFC 9110, section 15.5.6). They are routes of the same scope, and
 * so behind the same guard.
 */
export function refuseOtherMethods(scope: FastifyInstance): () => void {
  const methodsOf = new Map<string, string[]>()
  scope.addHook('onRoute', ({ routePath, method }) => {
    methodsOf.set(routePath, [...(methodsOf.get(routePath) ?? []), method].flat())
  })
  return () => {
    // A copy, because the routes added here are recorded as well.
    for (const [url, methods] of [...methodsOf]) {
      const allow = methods.toSorted().join(', ')
      scope.route({
        url,
        method: routableMethods.filter((method) => !methods.includes(method)),
        schema: { hide: true },
        preParsing: (request, _reply, _payload, done) => {
          done(new ApiError(405, `${request.method} is not allowed here; use ${allow}.`, { allow }))
        },
        handler: () => {},
      })
    }
  }
}
