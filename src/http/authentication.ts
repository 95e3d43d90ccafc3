import bearerAuth from '@fastify/bearer-auth'
import type { DoneFuncWithErrOrRes, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { ApiKeyOwner, FindApiKey } from '../api-keys/key.ts'
import { challenge } from '../contract/challenge.ts'
import { ApiError, ErrorBody, nothingHere } from '../contract/errors.ts'
import { Reference } from '../contract/schema-types.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** The API key that the request came with, valid or ended; null where none was asked for or it is not known. */
    apiKey: ApiKeyOwner | null
  }
}

/** The name of the security scheme in the OpenAPI document. */
export const SECURITY_SCHEME = 'apiKey'

/**
 * Guards everything that is registered in `scope`, its unknown paths too, with an API key as a bearer token
 * (RFC 6750), before anything of a body is read. It also adds its own 401 and the security requirement to the schema
 * of each of the scope's routes, and a 403 for keys that may only read to those that write. A request without a valid
 * key fails with a 401 ApiError, one whose key cannot be checked now with what `findApiKey` raises.
 */
export async function requireApiKey(scope: FastifyInstance, findApiKey: FindApiKey): Promise<void> {
  scope.addHook('onRoute', (route) => {
    const isForWriting = ![route.method].flat().every((method) => /^(GET|HEAD)$/.test(method))
    // Methods that a path does not have are refused as such, whoever asks.
    const needsWriting = isForWriting && route.schema?.hide !== true
    if (needsWriting) {
      route.onRequest = [...[route.onRequest ?? []].flat(), refuseReadOnly]
    }
    route.schema = {
      ...route.schema,
      security: [{ [SECURITY_SCHEME]: [] }],
      response: {
        ...(route.schema?.response ?? {}),
        401: Reference(ErrorBody, {
          description: 'API key missing or invalid',
          examples: [unauthorized().body],
          headers: challengeHeader,
        }),
        ...(needsWriting
          ? {
              403: Reference(ErrorBody, {
                description: 'The API key may only read',
                examples: [readOnly().body],
                headers: challengeHeader,
              }),
            }
          : {}),
      },
    }
  })

  await scope.register(bearerAuth, {
    addHook: false,
    // Letter case does not matter in the name of an authentication scheme (RFC 9110, section 11.1).
    specCompliance: 'rfc6749',
    verifyErrorLogLevel: 'debug',
    keys: [],
    auth: (key, request) => {
      const found = findApiKey(key)
      if (!(found instanceof Promise)) return admit(request, found)
      const admitted = found.then((owner) => admit(request, owner))
      return request.slot?.during(admitted) ?? admitted
    },
  })
  const { verifyBearerAuth } = scope
  if (verifyBearerAuth === undefined)
    throw new Error('@fastify/bearer-auth was registered without its decorator')
  scope.addHook('onRequest', (request, reply, done) => {
    verifyBearerAuth(request, reply, (error) =>
      done(reply.statusCode === 401 ? unauthorized(request.headers.authorization) : error),
    )
  })
  // With a handler of its own, the scope's unknown paths run the scope's hooks, the check of the key among them.
  scope.setNotFoundHandler(() => {
    throw nothingHere()
  })
}

const challengeHeader = {
  'WWW-Authenticate': { type: 'string', description: 'How to authenticate (RFC 6750)' },
} as const

/** 403 for a key that may only read, before anything of the body is read (RFC 6750, section 3.1). */
function refuseReadOnly(request: FastifyRequest, _reply: FastifyReply, done: DoneFuncWithErrOrRes): void {
  if (request.apiKey?.isReadOnly === true) done(readOnly())
  else done()
}

function readOnly(): ApiError {
  return new ApiError(
    403,
    'This API key may only read. Use one that may change the stock.',
    challenge('insufficient_scope'),
  )
}

function admit(request: FastifyRequest, owner: ApiKeyOwner | undefined): boolean {
  request.apiKey = owner ?? null
  return owner !== undefined && owner.invalidReason === undefined
}

/** A token was presented, whatever may be wrong with it. */
const presentedToken = /^bearer +\S/i

/**
 * 401. `authorization` is what the request sent. The error tells a wrong key from none; without it the caller is only told
 * how to authenticate, as it would be with another scheme (RFC 6750, section 3).
 */
function unauthorized(authorization = ''): ApiError {
  return new ApiError(
    401,
    'The API key is missing or invalid. Send it in the header Authorization: Bearer <API key>.',
    challenge(presentedToken.test(authorization) ? 'invalid_token' : undefined),
  )
}
