import { type Static, Type } from '@sinclair/typebox'

/**
 * Every machine-readable code that the service sends. Callers branch on these, so a code is never renamed or removed
 * within a version of the interface.
 */
export const errorCodes = [
  'invalid_request',
  'unauthorized',
  'forbidden',
  'not_found',
  'method_not_allowed',
  'request_timeout',
  'payload_too_large',
  'unsupported_media_type',
  'uri_too_long',
  'headers_too_large',
  'precondition_failed',
  'internal_error',
  'service_unavailable',
] as const
export type ErrorCode = (typeof errorCodes)[number]

/** The body of every response with a status of 400 or more. */
export const ErrorBody = Type.Object(
  {
    // Published as a string: a generated client with a closed enum fails on the first code that is added.
    code: Type.Unsafe<ErrorCode>({
      type: 'string',
      description:
        `Machine-readable error code. Known codes: ${errorCodes.join(', ')}. ` +
        'Codes may be added; treat an unknown one by its status.',
      'x-extensible-enum': errorCodes,
    }),
    message: Type.String({ description: 'Human-readable description' }),
    status: Type.Integer({
      description: 'The HTTP status code of the response',
      minimum: 400,
      maximum: 599,
    }),
  },
  { $id: 'Error', description: 'Body of every error response' },
)
export type ErrorBody = Static<typeof ErrorBody>

/** The code that a status stands for, where nothing more exact is known. */
const codeOfStatus: Record<number, ErrorCode> = {
  401: 'unauthorized',
  403: 'forbidden',
  404: 'not_found',
  405: 'method_not_allowed',
  408: 'request_timeout',
  412: 'precondition_failed',
  413: 'payload_too_large',
  414: 'uri_too_long',
  415: 'unsupported_media_type',
  431: 'headers_too_large',
  // The request asks for what HTTP leaves optional, and nothing has failed.
  501: 'invalid_request',
  503: 'service_unavailable',
}

/**
 * A failure whose outcome for the caller is decided: its message is written for the caller and says
 * nothing of the inside. Whoever throws it needs no reply at hand; `http/error-handler.ts` sends it.
 */
export class ApiError extends Error {
  override readonly name = 'ApiError'
  readonly status: number
  readonly headers: Readonly<Record<string, string>>

  constructor(status: number, message: string, headers: Record<string, string> = {}) {
    // Nobody reads the stack of a refusal, and to capture it would be a good part of what a refusal costs.
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = 0
    super(message)
    Error.stackTraceLimit = stackTraceLimit
    this.status = status
    this.headers = headers
  }

  /** The response body. A 4xx that has no code of its own is `invalid_request`, a 5xx `internal_error`. */
  get body(): ErrorBody {
    const code = codeOfStatus[this.status] ?? (this.status < 500 ? 'invalid_request' : 'internal_error')
    return { code, message: this.message, status: this.status }
  }
}

/** 404 for a path that no route has. */
export function nothingHere(): ApiError {
  return new ApiError(
    404,
    'There is nothing at this path. The inventory is at /v1/inventory, the documentation of the API at /docs.',
  )
}

/** 503. `retryAfter` is in seconds (RFC 9110, section 10.2.3). */
export function serviceUnavailable(message: string, retryAfter = 1): ApiError {
  return new ApiError(503, message, { 'retry-after': String(retryAfter) })
}
