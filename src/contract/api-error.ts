import { type Static, Type } from '@sinclair/typebox'

/** The error code of each status. Callers branch on the codes: within a version of the interface, none is renamed or removed. */
const codeOfStatus = {
  400: 'invalid_request',
  401: 'unauthorized',
  403: 'forbidden',
  404: 'not_found',
  405: 'method_not_allowed',
  408: 'request_timeout',
  412: 'precondition_failed',
  413: 'payload_too_large',
  414: 'uri_too_long',
  415: 'unsupported_media_type',
  /** Of the balancer, which limits the rate of requests. */
  429: 'too_many_requests',
  431: 'headers_too_large',
  500: 'internal_error',
  503: 'service_unavailable',
} as const

const errorCodes = [...Object.values(codeOfStatus), 'nothing_changed'] as const
type ErrorCode = (typeof errorCodes)[number]

/** The body of every response with a status of 400 or more. */
export const ErrorBody = Type.Object(
  {
    // Published as a plain string: a generated client with a closed enum would fail on a code that is added later.
    code: Type.Unsafe<ErrorCode>({
      type: 'string',
      description:
        `Machine-readable error code. Known codes: ${errorCodes.join(', ')}. ` +
        'New codes may be added; handle an unknown code by its status.',
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

interface ApiErrorDetails {
  readonly headers?: Readonly<Record<string, string>>
  /** Of a 503, for the log and as the label of a metric; see `StatementError`. */
  readonly cause?: string
  /** By default that of the status; for other statuses, `invalid_request` or `internal_error`. */
  readonly code?: ErrorCode | undefined
}

/** An error with a status and a message that are safe to show to the caller. */
export class ApiError extends Error {
  override readonly name = 'ApiError'
  readonly status: number
  readonly code: ErrorCode
  readonly headers: Readonly<Record<string, string>>
  override readonly cause: string | undefined

  constructor(status: number, message: string, { headers, cause, code }: ApiErrorDetails = {}) {
    // Nobody reads the stack trace, a large part of the cost of refusing a request.
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = 0
    super(message)
    Error.stackTraceLimit = stackTraceLimit
    const codes: Readonly<Record<number, ErrorCode>> = codeOfStatus
    this.status = status
    this.code = code ?? codes[status] ?? codeOfStatus[status < 500 ? 400 : 500]
    // A shared cache may otherwise keep a 404 or a 405 for minutes, also one of a version that lacks a path.
    this.headers = { 'cache-control': 'no-store', ...headers }
    this.cause = cause
  }

  /** The response body. */
  get body(): ErrorBody {
    return { code: this.code, message: this.message, status: this.status }
  }
}

/** Creates a 503 with `Retry-After` (RFC 9110, section 10.2.3); of an update, it says that the outcome is unknown. */
export function serviceUnavailable(cause: string, message: string, code?: 'nothing_changed'): ApiError {
  return new ApiError(503, message, { headers: { 'retry-after': '1' }, cause, code })
}

/** Creates a 503 that says that the update was certainly not made, so that any caller may send it again. */
export function nothingChanged(cause: string, reason: string): ApiError {
  return serviceUnavailable(cause, `${reason} Nothing was changed. Try again shortly.`, 'nothing_changed')
}
