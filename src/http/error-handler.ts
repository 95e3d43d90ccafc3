import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { ApiError, nothingChanged, serviceUnavailable } from '../contract/api-error.ts'
import { StatementError } from '../database/statement-error.ts'
import { MAX_BODY_BYTES, unsupportedMediaType } from './json-body.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Why the request got a 503, for the log and the metrics. */
    unavailable: { cause: string; reason: string } | null
  }
}

const NO_ROUTE =
  'There is nothing at this path. The inventory is at /v1/inventory, and the documentation of the API at /docs.'

const UNKNOWN_OUTCOME =
  'The database did not confirm the update. It may have been made, or may still be made.'

/** Answers errors and unmatched routes with the error body of the interface. For errors of Node's parser, see `malformed-requests.ts`. */
export function handleErrors(app: FastifyInstance): void {
  app.decorateRequest('unavailable', null)
  app.setErrorHandler<FastifyError>(sendError)
  // Not in a not-found handler, which runs after the body is parsed: a 404 takes precedence over errors in the body.
  app.addHook('preParsing', (request, _reply, _payload, done) => {
    // The router matches `/inventory/` with `/inventory/:petId`.
    const hasEmptyParameter = Object.values(Object(request.params)).includes('')
    done(request.is404 || hasEmptyParameter ? new ApiError(404, NO_ROUTE) : null)
  })
}

function sendError(error: FastifyError | ApiError, request: FastifyRequest, reply: FastifyReply): void {
  const response = responseTo(error, request)
  const err = error instanceof StatementError ? error.cause : error
  if (response.status === 500) request.log.error({ err }, 'request failed')
  // The error of the database or the network says more than the response.
  if (response.cause !== undefined) request.unavailable = { cause: response.cause, reason: error.message }
  reply
    .code(response.status)
    .headers(response.headers)
    .type('application/json; charset=utf-8')
    .send(response.body)
}

function responseTo(error: FastifyError | ApiError, { headers, method }: FastifyRequest): ApiError {
  if (error instanceof ApiError) return error
  if (error instanceof StatementError && error.unavailable !== undefined) {
    const reason = 'The database cannot be reached or is too busy.'
    // A request that only reads needs no code that says that nothing was changed.
    if (method === 'GET' || method === 'HEAD')
      return serviceUnavailable(error.unavailable, `${reason} Try again shortly.`)
    return error.outcome === 'unknown'
      ? serviceUnavailable(error.unavailable, UNKNOWN_OUTCOME)
      : nothingChanged(error.unavailable, reason)
  }
  const { statusCode: status = 500 } = error
  if (status === 413)
    return new ApiError(413, `The body is too large. The maximum is ${MAX_BODY_BYTES} bytes.`)
  if (status === 415) return unsupportedMediaType(headers)
  if (status >= 400 && status < 500) return new ApiError(status, 'The request is invalid.')
  return new ApiError(
    500,
    'Internal error. The log of the service has the details under the X-Request-Id of this response.',
  )
}
