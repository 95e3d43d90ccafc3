import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { ApiError, nothingHere, serviceUnavailable } from '../contract/errors.ts'
import { DatabaseUnavailableError } from '../database/failures.ts'
import { bodyTooLarge } from './json-body.ts'
import { unsupportedMediaType } from './media-type.ts'
import type { OutageLog } from './outage-log.ts'

/**
 * Answers every failure that reaches the framework, and every unmatched route, with the one error body.
 * Failures that Node finds before there is a request are answered in `client-errors.ts`.
 */
export function handleErrors(app: FastifyInstance, outages: OutageLog): void {
  app.setErrorHandler<FastifyError>((error, request, reply) => sendError(error, request, reply, outages))
  // Not in a not-found handler, which runs after the body was parsed: a 404 comes before any fault of the body.
  app.addHook('preParsing', (request, _reply, _payload, done) => {
    done(request.is404 || hasEmptyParameter(request) ? nothingHere() : null)
  })
}

/** Sends what an error means to the caller, and logs what it means to the operator where that is more. */
export function sendError(
  error: FastifyError,
  request: FastifyRequest,
  reply: FastifyReply,
  outages: OutageLog,
): void {
  const answer = answerTo(error, request)
  if (answer.status === 500) request.log.error({ err: error }, 'request failed')
  else if (error instanceof DatabaseUnavailableError) {
    error.countLoss()
    outages.refused(error.cause)
  }
  reply.code(answer.status).headers(answer.headers).type('application/json; charset=utf-8').send(answer.body)
}

function answerTo(error: FastifyError, request: FastifyRequest): ApiError {
  if (error instanceof ApiError) return error
  if (error instanceof DatabaseUnavailableError) {
    return serviceUnavailable('The database cannot be reached or is too busy. Try again shortly.')
  }
  const status = error.statusCode ?? 500
  if (status === 415) return unsupportedMediaType(request.headers)
  if (status >= 400 && status < 500)
    return frameworkFaults[status]?.() ?? new ApiError(status, 'The request is invalid.')
  return new ApiError(
    500,
    'The service failed. Its log has the details under the X-Request-Id of this response.',
  )
}

/** What the framework's own refusals mean; their messages speak of its inside. */
const frameworkFaults: Record<number, () => ApiError> = {
  400: () =>
    new ApiError(
      400,
      'The request is malformed: its path has an invalid percent-escape or its body does not fit its length.',
    ),
  413: bodyTooLarge,
}

/** The router takes `/inventory/` for `/inventory/:petId` with an empty petId; no route has such a path. */
function hasEmptyParameter({ params }: FastifyRequest): boolean {
  return typeof params === 'object' && params !== null && Object.values(params).includes('')
}
