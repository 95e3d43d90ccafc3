import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { ApiError, routeNotFound, serviceUnavailable } from '../contract/errors.ts'
import { DatabaseUnavailableError } from '../database/errors.ts'
import { bodyTooLarge } from './json-body.ts'
import { unsupportedMediaType } from './media-type.ts'
import type { OutageLog } from './outage-log.ts'

/**
 * Answers errors and unmatched routes with the error body of the interface. Errors of Node's HTTP parser never reach
 * Fastify; see `connections/malformed-requests.ts`.
 */
export function handleErrors(app: FastifyInstance, outages: OutageLog): void {
  app.setErrorHandler<FastifyError>((error, request, reply) => sendError(error, request, reply, outages))
  // Not in a not-found handler, which runs after the body is parsed: a 404 takes precedence over errors in the body.
  app.addHook('preParsing', (request, _reply, _payload, done) => {
    done(request.is404 || hasEmptyParameter(request) ? routeNotFound() : null)
  })
}

/** Sends the error response, and logs the cause of a 500 or a database outage. */
export function sendError(
  error: FastifyError | ApiError,
  request: FastifyRequest,
  reply: FastifyReply,
  outages: OutageLog,
): void {
  const response = responseTo(error, request)
  if (response.status === 500) request.log.error({ err: error }, 'request failed')
  else if (error instanceof DatabaseUnavailableError) {
    error.countFailure()
    outages.requestFailed(error.cause)
  }
  reply
    .code(response.status)
    .headers(response.headers)
    .type('application/json; charset=utf-8')
    .send(response.body)
}

function responseTo(error: FastifyError | ApiError, request: FastifyRequest): ApiError {
  if (error instanceof ApiError) return error
  if (error instanceof DatabaseUnavailableError) {
    return databaseUnavailable()
  }
  const status = error.statusCode ?? 500
  if (status === 415) return unsupportedMediaType(request.headers)
  if (status >= 400 && status < 500)
    return fastifyErrors[status]?.() ?? new ApiError(status, 'The request is invalid.')
  return internalError()
}

/** Creates the 500 for an unexpected error. */
export function internalError(): ApiError {
  return new ApiError(
    500,
    'Internal error. The log of the service has the details under the X-Request-Id of this response.',
  )
}

/** Creates the 503 for a request that the database could not serve. */
export function databaseUnavailable(): ApiError {
  return serviceUnavailable('The database cannot be reached or is too busy. Try again shortly.')
}

/** Replacements for Fastify's own errors, whose messages expose internals. */
const fastifyErrors: Record<number, () => ApiError> = {
  400: () => new ApiError(400, 'The path must be percent-encoded UTF-8. A % itself is %25.'),
  413: bodyTooLarge,
}

/** Whether a path parameter is empty: the router matches `/inventory/` with `/inventory/:petId`, but that path is a 404. */
function hasEmptyParameter({ params }: FastifyRequest): boolean {
  return typeof params === 'object' && params !== null && Object.values(params).includes('')
}
