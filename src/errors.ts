import { type Static, Type } from '@sinclair/typebox'
import { StringEnum } from './schema-types.ts'

/**
 * Every machine-readable code that a caller can meet: a closed list, published in the OpenAPI document.
 * Callers branch on these, so a code is never renamed or removed within a version of the interface.
 */
export const ErrorCode = StringEnum(
  [
    'invalid_request',
    'unauthorized',
    'not_found',
    'method_not_allowed',
    'request_timeout',
    'payload_too_large',
    'unsupported_media_type',
    'uri_too_long',
    'headers_too_large',
    'internal_error',
    'service_unavailable',
  ],
  { description: 'Machine-readable error code' },
)
export type ErrorCode = Static<typeof ErrorCode>

/** The body of every response with a status of 400 or more. */
export const ErrorBody = Type.Object(
  {
    code: ErrorCode,
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
  404: 'not_found',
  405: 'method_not_allowed',
  408: 'request_timeout',
  413: 'payload_too_large',
  414: 'uri_too_long',
  415: 'unsupported_media_type',
  431: 'headers_too_large',
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
  return new ApiError(404, 'There is nothing at this path.')
}

/** 503. `retryAfter` is in seconds (RFC 9110, section 10.2.3). */
export function serviceUnavailable(message: string, retryAfter = 1): ApiError {
  return new ApiError(503, message, { 'retry-after': String(retryAfter) })
}
