import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { ApiError, ErrorBody, nothingChanged, serviceUnavailable } from '../contract/api-error.ts'
import { StatementError } from '../database/statement-error.ts'
import { MAX_BODY_BYTES, unsupportedMediaType } from './json-body.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Why the request got a 503, for the log and the metrics. */
    unavailable: { cause: string; reason: string } | null
  }
}

const UNKNOWN_OUTCOME =
  'The database did not confirm the update. It may have been made, or may still be made.'

/** Answers errors with the error body of the interface. For errors of Node's parser, see `malformed-requests.ts`. */
export const errors = fp(
  async (app) => {
    app.addSchema(ErrorBody)
    app.decorateRequest('unavailable', null)
    app.setErrorHandler<FastifyError>(sendError)
  },
  { name: 'errors' },
)

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
