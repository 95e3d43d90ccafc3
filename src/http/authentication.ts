import bearerAuth from '@fastify/bearer-auth'
import fp from 'fastify-plugin'
import type { ApiKeyOwner, FindApiKey } from '../api-keys/key.ts'
import { ApiError } from '../contract/api-error.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** The owner of the accepted API key, if any. */
    apiKey: ApiKeyOwner | null
  }
}

const NO_KEY =
  'The API key is missing or invalid. Send a valid key in the header Authorization: Bearer <API key>.'

export interface AuthenticationOptions {
  readonly apiKeys: { readonly find: FindApiKey }
}

/**
 * Requires an API key as a bearer token (RFC 6750) for all routes of the scope that it is registered in, before the body is read. If a key
 * cannot be checked, the request fails with the error of `find`.
 */
export const authentication = fp<AuthenticationOptions>(
  async (scope, { apiKeys }) => {
    await scope.register(bearerAuth, {
      addHook: false,
      // The name of an authentication scheme is case-insensitive (RFC 9110, section 11.1).
      specCompliance: 'rfc6749',
      verifyErrorLogLevel: 'debug',
      keys: [],
      auth: async (key, request) => {
        const owner = await apiKeys.find(key)
        if (owner === undefined) throw challenge(401, NO_KEY, 'invalid_token')
        request.apiKey = owner
        return true
      },
    })
    const { verifyBearerAuth } = scope
    if (verifyBearerAuth === undefined)
      throw new Error('@fastify/bearer-auth was registered without its decorator')
    scope.addHook('onRequest', (request, reply, done) => {
      verifyBearerAuth(request, reply, (error) =>
        done(reply.statusCode === 401 ? challenge(401, NO_KEY) : error),
      )
    })
  },
  { name: 'authentication', dependencies: ['errors'] },
)

/** Creates an error that says how to authenticate and, if the request has a bearer token, what is wrong with it (RFC 6750, section 3). */
export function challenge(status: 401 | 403, message: string, error?: string): ApiError {
  const details = error === undefined ? '' : `, error="${error}"`
  const headers = { 'www-authenticate': `Bearer realm="inventory"${details}` }
  return new ApiError(status, message, { headers })
}
