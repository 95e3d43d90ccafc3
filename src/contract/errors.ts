import { type Static, Type } from '@sinclair/typebox'

/**
 * The machine-readable error code of each status; see `ApiError.body` for the others. Callers branch on the codes, so within a
 * version of the interface none is renamed or removed.
 */
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
  431: 'headers_too_large',
  500: 'internal_error',
  503: 'service_unavailable',
} as const
export const errorCodes = Object.values(codeOfStatus)
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

/** Why the service cannot serve a request: in the log, and as the label of a metric. Callers see only the message. */
export type UnavailableCause =
  | 'database_unreachable'
  /** The database accepts no writes here: it is a standby, a former primary, or read-only. */
  | 'read_only'
  /** Another transaction has locked the entry or the table. */
  | 'locked'
  /** The database did not respond, or did not confirm a change, in time. */
  | 'late'
  /** The service is not ready, as `/readyz` says. */
  | 'not_ready'

/**
 * An error with a status and a message that are safe to show to the caller. `http/error-handler.ts` sends it as the
 * response.
 */
export class ApiError extends Error {
  override readonly name = 'ApiError'
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  /** Only for a 503. */
  override readonly cause: UnavailableCause | undefined

  constructor(
    status: number,
    message: string,
    headers: Record<string, string> = {},
    cause?: UnavailableCause,
  ) {
    // Nobody reads the stack trace, and capturing it would be a large part of the cost of refusing a request.
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = 0
    super(message)
    Error.stackTraceLimit = stackTraceLimit
    this.status = status
    // A shared cache may otherwise keep a 404 or a 405 for minutes, also one of a version that lacks a path.
    this.headers = { 'cache-control': 'no-store', ...headers }
    this.cause = cause
  }

  /** The response body. A 4xx status without a code of its own is `invalid_request`, a 5xx `internal_error`. */
  get body(): ErrorBody {
    const codes: Readonly<Record<number, ErrorCode>> = codeOfStatus
    const code = codes[this.status] ?? codeOfStatus[this.status < 500 ? 400 : 500]
    return { code, message: this.message, status: this.status }
  }
}

/** Creates the 404 for a path that matches no route. */
export function routeNotFound(): ApiError {
  return new ApiError(
    404,
    'Nothing exists at this path. The inventory is at /v1/inventory, the API documentation at /docs.',
  )
}

/** Creates a 503 with `Retry-After` (RFC 9110, section 10.2.3). */
export function serviceUnavailable(cause: UnavailableCause, message: string): ApiError {
  return new ApiError(503, message, { 'retry-after': '1' }, cause)
}

/** Returns the header that says how to authenticate and, given an error, what was wrong (RFC 6750, section 3). */
export function bearerChallenge(error?: 'invalid_token' | 'insufficient_scope'): Record<string, string> {
  const scheme = 'Bearer realm="inventory"'
  return { 'www-authenticate': error === undefined ? scheme : `${scheme}, error="${error}"` }
}
